"""What do the touched documents look like now?"""
