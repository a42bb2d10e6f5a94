"""The search engine, independent of Ray: text analysis, indexing, exact search of a shard, merging of shards."""
