package sqlstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// written remembers the texts of named policies and success rules: nearly all callbacks share a few.
type written struct {
	mu        sync.RWMutex
	policies  map[string]writtenPolicy
	successes map[store.Success]string
}

// A writtenPolicy is a policy as it was when its text was written: what a name stands for may change.
type writtenPolicy struct {
	store.Policy
	text string
}

func (w *written) policy(p *store.Policy) (string, error) {
	w.mu.RLock()
	known, ok := w.policies[p.Name]
	w.mu.RUnlock()
	if ok && samePolicy(&known.Policy, p) {
		return known.text, nil
	}
	text, err := encode(p)
	if err != nil || p.Name == "" {
		return text, err
	}
	keep := writtenPolicy{*p, text}
	keep.Tiers, keep.StopOn = slices.Clone(p.Tiers), slices.Clone(p.StopOn)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policies == nil || len(w.policies) >= maxDecoded {
		w.policies = make(map[string]writtenPolicy)
	}
	w.policies[p.Name] = keep
	return text, nil
}

func samePolicy(a, b *store.Policy) bool {
	return slices.Equal(a.Tiers, b.Tiers) && slices.Equal(a.StopOn, b.StopOn) && (a.Tiers == nil) == (b.Tiers == nil) &&
		a.Name == b.Name && a.RepeatLast == b.RepeatLast && a.Deadline == b.Deadline && a.Timeout == b.Timeout && a.Jitter == b.Jitter &&
		a.RetryAfterCap == b.RetryAfterCap && a.OverloadFloor == b.OverloadFloor
}

func (w *written) success(s store.Success) (string, error) {
	w.mu.RLock()
	text, ok := w.successes[s]
	w.mu.RUnlock()
	if ok {
		return text, nil
	}
	text, err := encode(s)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.successes == nil || len(w.successes) >= maxDecoded {
		w.successes = make(map[store.Success]string)
	}
	w.successes[s] = text
	return text, nil
}

// decode reads JSON text of a column; empty text leaves v as it is.
func decode(column, text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %s: %w", column, err)
	}
	return nil
}

// encode writes JSON text for a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// maxDecoded is how many values one decoded remembers.
const maxDecoded = 1000

// decoded remembers what the texts of a column mean: most callbacks share a few. The zero value is empty.
type decoded[V any] struct {
	mu   sync.RWMutex
	text map[string]V
}

// decode returns what the text means. Who gets it must not change what it points to.
func (d *decoded[V]) decode(column, text string) (V, error) {
	d.mu.RLock()
	v, ok := d.text[text]
	d.mu.RUnlock()
	if ok || text == "" {
		return v, nil
	}
	if err := decode(column, text, &v); err != nil {
		return v, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.text == nil || len(d.text) >= maxDecoded {
		d.text = make(map[string]V)
	}
	d.text[text] = v
	return v, nil
}
