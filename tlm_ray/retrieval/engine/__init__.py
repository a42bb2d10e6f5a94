"""The search engine: text to terms, one shard's index, its exact search, and the merge of shards. Free of Ray."""
