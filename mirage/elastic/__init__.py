"""DL2: how many workers and parameter servers each training job gets in each time slot.

Source: Peng et al., "DL2: A Deep Learning-driven Allocator for Deep Learning Clusters". Equation,
table, figure and section numbers of this package are that paper's.
"""
