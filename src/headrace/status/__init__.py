"""What does an operator see: state, metrics, health?"""
