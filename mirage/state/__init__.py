"""What a policy sees: the 40 variables, the 144-step history, its rebuilding from accounting
records.
"""
