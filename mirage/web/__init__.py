"""The daemon's read-only web page (docs/web.md): what it sees and does, and to each user their own
chains.
"""
