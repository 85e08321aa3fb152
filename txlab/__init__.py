"""txlab: transformers from interchangeable parts."""
