-- Lets no other node join or beat until the transaction ends, so that of two new nodes with one
-- label the later sees the earlier. [node.label]
LOCK TABLE {schema}.nodes IN SHARE ROW EXCLUSIVE MODE
