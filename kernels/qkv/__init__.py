"""K3: q norm and quantisation beside kv norm, rope and paged insert."""
