"""A checklist of what a sentiment model should do, by capability, in the style of CheckList.

Ribeiro et al. 2020, "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList". The templates are `suite.toml`.
"""
