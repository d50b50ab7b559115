package query

// maxRecent is half of the entries that a recent map has at most.
const maxRecent = 10_000

// recent is a map that forgets the entries that were used longest ago. An entry is kept as long as fewer than
// maxRecent others are used after it. The zero value is ready.
type recent[K comparable, V any] struct{ young, old map[K]V }

// get returns the key's value, which counts as a use.
func (r *recent[K, V]) get(key K) (V, bool) {
	value, ok := r.young[key]
	if ok {
		return value, true
	}
	if value, ok = r.old[key]; ok {
		r.put(key, value)
	}
	return value, ok
}

// put keeps a value.
func (r *recent[K, V]) put(key K, value V) {
	if _, there := r.young[key]; !there && len(r.young) >= maxRecent || r.young == nil {
		r.young, r.old = make(map[K]V), r.young
	}
	r.young[key] = value
}

// forget removes a key.
func (r *recent[K, V]) forget(key K) {
	delete(r.young, key)
	delete(r.old, key)
}
