"""Which documents does a change touch?"""
