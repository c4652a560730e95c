"""What is known of one workload, and the words in which it is spoken of: its placeholder's record and
the states of that, the events that change it, the effects that follow, and whose a job is. Data and pure
functions.
"""
