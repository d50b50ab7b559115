package redisq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// phases are the structures of a shard in the order of an audit. The places come before the counts that
// depend on them.
var phases = []string{"records", "delay", "ready", "claims", "leases", "lanes", "breakers", "locks",
	"waiters"}

// Audit checks and repairs one page, about 200 entries, of one of the shard's structures. A page may have
// checked nothing; only an empty Next ends the audit.
func (ix *Index) Audit(ctx context.Context, shard int, cursor string) (page schedule.AuditPage, err error) {
	phase, at, _ := strings.Cut(cmp.Or(cursor, phases[0]+":0"), ":")
	number := slices.Index(phases, phase)
	if number < 0 {
		return page, fmt.Errorf("audit: cursor %q: %w", cursor, schedule.ErrInvalid)
	}
	if err := checkCursor("audit", at); err != nil {
		return page, err
	}
	err = ix.run(ctx, "audit", shard, []any{phase, at}, func(r *reply) {
		r.tick()
		at = r.text()
		page.Checked, page.Repaired = int(r.int()), int(r.int())
	})
	switch {
	case at != "0":
		page.Next = phase + ":" + at
	case number+1 < len(phases):
		page.Next = phases[number+1] + ":0"
	}
	return page, err
}

// Scan lists the items of the shard, about limit on a page. A page may be empty; only an empty Next ends the
// scan.
func (ix *Index) Scan(ctx context.Context, shard int, cursor string,
	limit int) (page schedule.ScanPage, err error) {
	cursor = cmp.Or(cursor, "0")
	if err := checkCursor("scan", cursor); err != nil {
		return page, err
	}
	err = ix.run(ctx, "scan", shard, []any{cursor, min(max(limit, 1), schedule.MaxBatch)}, func(r *reply) {
		page.Next = r.text()
		if page.Next == "0" {
			page.Next = ""
		}
		for r.more() {
			id, record := r.text(), r.text()
			it, _, _, err := decodeRecord(id, record)
			if err != nil && r.err == nil {
				r.err = err
			}
			page.Found = append(page.Found, schedule.Found{Item: it, Place: schedule.Place(r.int())})
		}
	})
	return page, err
}

// checkCursor returns ErrInvalid for a cursor that no reply can have: they are whole numbers.
func checkCursor(operation, cursor string) error {
	if _, err := strconv.ParseUint(cursor, 10, 64); err != nil {
		return fmt.Errorf("%s: cursor %q: %w", operation, cursor, schedule.ErrInvalid)
	}
	return nil
}
