package sqlstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A memo caches values by key: most callbacks share a few policies and rules. The zero value is an empty
// cache of maxMemo values. A full cache is emptied, which bounds it without keeping an order.
type memo[K comparable, V any] struct {
	max    int
	mu     sync.RWMutex
	values map[K]V
}

const maxMemo = 1000

// get returns a cached value. The caller must not change it.
func (m *memo[K, V]) get(key K) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.values[key]
	return v, ok
}

// put caches a value.
func (m *memo[K, V]) put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil || len(m.values) >= cmp.Or(m.max, maxMemo) {
		m.values = make(map[K]V)
	}
	m.values[key] = v
}

// decodeOnce decodes the text of a column and caches the value by its text.
func decodeOnce[V any](m *memo[string, V], column, text string) (V, error) {
	v, ok := m.get(text)
	if ok {
		return v, nil
	}
	err := decode(column, text, &v)
	if err == nil {
		m.put(text, v)
	}
	return v, err
}

// written caches the JSON texts of named policies and of success rules.
type written struct {
	policies  memo[string, writtenPolicy]
	successes memo[store.Success, string]
}

// A writtenPolicy is a policy with its text. It is compared before the text is used, because a name may stand
// for another policy later.
type writtenPolicy struct {
	store.Policy
	text string
}

// policy returns the JSON text of a policy.
func (w *written) policy(p *store.Policy) (string, error) {
	known, ok := w.policies.get(p.Name)
	if ok && samePolicy(&known.Policy, p) {
		return known.text, nil
	}
	text, err := encode(p)
	if err == nil && p.Name != "" {
		keep := writtenPolicy{*p, text}
		keep.Tiers, keep.StopOn = slices.Clone(p.Tiers), slices.Clone(p.StopOn)
		w.policies.put(p.Name, keep)
	}
	return text, err
}

// success returns the JSON text of a success rule.
func (w *written) success(s store.Success) (string, error) {
	text, ok := w.successes.get(s)
	if ok {
		return text, nil
	}
	text, err := encode(s)
	if err == nil {
		w.successes.put(s, text)
	}
	return text, err
}

// samePolicy reports whether two policies have the same JSON text. A test makes sure that it compares every
// field.
func samePolicy(a, b *store.Policy) bool {
	return slices.Equal(a.Tiers, b.Tiers) && slices.Equal(a.StopOn, b.StopOn) &&
		(a.Tiers == nil) == (b.Tiers == nil) &&
		a.Name == b.Name && a.RepeatLast == b.RepeatLast && a.Deadline == b.Deadline &&
		a.Timeout == b.Timeout && a.Jitter == b.Jitter &&
		a.RetryAfterCap == b.RetryAfterCap && a.OverloadFloor == b.OverloadFloor
}

// decode reads the JSON text of a column. Empty text leaves v as it is.
func decode(column, text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %s: %w", column, err)
	}
	return nil
}

// encode returns the JSON text of a value for a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// members are the names of a JSON object's members, and pointers to their values. Zero values are not
// written. A member may be added, but a stored one never changes its meaning.
type members map[string]any

// MarshalJSON implements [json.Marshaler].
func (m members) MarshalJSON() ([]byte, error) {
	given := make(map[string]any, len(m))
	for name, at := range m {
		if !reflect.ValueOf(at).Elem().IsZero() {
			given[name] = at
		}
	}
	return json.Marshal(given)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m members) UnmarshalJSON(text []byte) error {
	var given map[string]json.RawMessage
	err := json.Unmarshal(text, &given)
	for name, at := range m {
		if value, ok := given[name]; ok {
			err = errors.Join(err, json.Unmarshal(value, at))
		}
	}
	return err
}
