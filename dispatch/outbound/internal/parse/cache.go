package parse

import "sync"

// A Cache holds at most a number of computed values by key, so that they are not computed for each attempt.
// If it is full, it drops all entries, which are then computed once more. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit int
	mu    sync.RWMutex
	m     map[K]V
}

// NewCache returns an empty cache of at most limit entries.
func NewCache[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, m: make(map[K]V)}
}

// Get returns the value of a key and whether it is cached.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.m[key]
	return v, ok
}

// Put caches a value.
func (c *Cache[K, V]) Put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= c.limit {
		clear(c.m)
	}
	c.m[key] = v
}

// Of returns the cached value of a key, or the result of create. An error is not cached. Two callers may
// create the same value at the same time.
func (c *Cache[K, V]) Of(key K, create func() (V, error)) (V, error) {
	if v, ok := c.Get(key); ok {
		return v, nil
	}
	v, err := create()
	if err == nil {
		c.Put(key, v)
	}
	return v, err
}
