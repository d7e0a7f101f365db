"""What does this deployment look like: the file, the environment, the secrets?"""
