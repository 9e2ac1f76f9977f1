"""`mirage assess`: whether Mirage is worth it at a site, from its job history to one page.

`history` gets the input, `waits` and `habits` say what the queue and its chains are like,
`assessment` runs the steps, `page` shows the result.
"""
