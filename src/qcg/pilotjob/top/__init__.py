"""The terminal view `qcg-pm top`: keys change a model, and the model is drawn with rich.

May import `watch` and lower layers.
"""
