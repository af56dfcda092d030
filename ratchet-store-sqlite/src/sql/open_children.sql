-- The jobs that have open links on a parent. [link.decide] [batch.callback] ratchet_links_parent.
SELECT DISTINCT child FROM ratchet_links INDEXED BY ratchet_links_parent
WHERE parent = ?1 AND kind = ?2 AND state = 0
