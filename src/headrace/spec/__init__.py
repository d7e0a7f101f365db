"""What documents does the user want? Schema files in, typed trees out, each error with file and line."""
