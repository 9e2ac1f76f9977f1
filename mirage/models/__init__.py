"""Model folders of every system: their recipe, checks, versions, and the models that come with
Mirage.
"""
