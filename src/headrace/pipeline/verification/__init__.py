"""Does an index hold what the database says, and what is done where it does not?"""
