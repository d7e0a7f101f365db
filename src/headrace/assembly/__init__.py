"""Assembly: read the documents of given keys from the database, as document operations.

`lowering` finds the columns of the schema's tree, `render` and `statement` turn that plan into SQL text, and
`Assembler` runs it. PostgreSQL creates the JSON; it is never parsed.
"""
