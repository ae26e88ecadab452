"""The agreement hash: have all ranks done the same step?"""
