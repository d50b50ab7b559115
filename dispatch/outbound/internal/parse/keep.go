package parse

import "sync"

// A Keep holds what was worked out for a key, so that it need not be worked out for each attempt. It is
// bounded: when it is full it forgets everything, which costs the work once more. It is safe for concurrent
// use.
type Keep[K comparable, V any] struct {
	most int
	mu   sync.RWMutex
	m    map[K]V
}

func NewKeep[K comparable, V any](most int) *Keep[K, V] {
	return &Keep[K, V]{most: most, m: make(map[K]V)}
}

func (k *Keep[K, V]) Get(key K) (V, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	v, ok := k.m[key]
	return v, ok
}

func (k *Keep[K, V]) Put(key K, v V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.m) >= k.most {
		clear(k.m)
	}
	k.m[key] = v
}

// Of returns what is kept for a key, and makes it first if there is nothing. What cannot be made is not kept.
func (k *Keep[K, V]) Of(key K, made func() (V, error)) (V, error) {
	if v, ok := k.Get(key); ok {
		return v, nil
	}
	v, err := made()
	if err == nil {
		k.Put(key, v)
	}
	return v, err
}
