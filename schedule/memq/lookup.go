package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Lookup answers each ref with where the item is, and changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	err := checkAll("lookup", len(refs), func(i int) error { return checkRef(refs[i].ID, refs[i].Lane) })
	if err != nil {
		return nil, err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.begin(ctx); err != nil {
		return nil, err
	}
	positions := make([]schedule.Position, len(refs))
	for i := range refs {
		k, _ := parseKey(refs[i].ID)
		if it := ix.items[k]; it != nil {
			positions[i] = it.position()
		}
	}
	return positions, nil
}
