"""What does the database really have: tables, columns, keys, types, indexes, replica identities?"""
