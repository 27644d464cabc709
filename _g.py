from docs.generate.explanations import write_explanations
print(write_explanations())
