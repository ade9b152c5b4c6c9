"""Figures of the analyses: each function draws the numbers of one, and `save_figure` writes it as SVG or PNG.

The same numbers give the same file, byte by byte, with the same version of matplotlib. Languages are written by their
tags, which any font has.
"""
