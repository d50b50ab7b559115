package index

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// verifyPause is the time between the two comparisons. A change on its way shows once; a loss shows
	// twice.
	verifyPause = 2 * time.Second
	// verifyTimeout is how long Verify waits for an index that is being filled. An index that is still lost
	// then is an error.
	verifyTimeout = 10 * time.Second
	// maxDriftIDs is how many ids of each kind are listed unless all are requested.
	maxDriftIDs = 100
)

// A drift is the result of one comparison, by id. beyond counts the rows that the index need not hold yet.
type drift struct {
	rows, items, beyond  int
	missing, late, extra map[string]bool
}

// Verify compares SQL with the index in both directions, and reports what differs in two comparisons, two
// seconds apart. It changes nothing and works in pages, so it may run at any time.
func (ix *Index) Verify(ctx context.Context) (Drift, error) { return ix.verify(ctx, maxDriftIDs) }

// VerifyAll is Verify that lists all ids.
func (ix *Index) VerifyAll(ctx context.Context) (Drift, error) { return ix.verify(ctx, math.MaxInt) }

// verify compares twice, and lists at most maxIDs ids of each kind.
func (ix *Index) verify(ctx context.Context, maxIDs int) (Drift, error) {
	ix.generation.await(ctx, verifyTimeout)
	first, err := ix.compare(ctx)
	if err != nil {
		return Drift{}, err
	}
	report := Drift{Rows: first.rows, Items: first.items, Beyond: first.beyond,
		Generation: ix.generation.get().Generation}
	report.IndexGeneration = cmp.Or(ix.generation.kept.Load(), report.Generation)
	if len(first.missing)+len(first.late)+len(first.extra) == 0 {
		return report, nil
	}
	process.Sleep(ctx, verifyPause)
	if ctx.Err() != nil {
		return Drift{}, ctx.Err()
	}
	second, err := ix.compare(ctx)
	if err != nil {
		return Drift{}, err
	}
	extra := inBoth(first.extra, second.extra)
	unknown, ended, err := ix.splitExtra(ctx, extra)
	if err != nil {
		return Drift{}, err
	}
	missing, late := inBoth(first.missing, second.missing), inBoth(first.late, second.late)
	report.Missing, report.MissingIDs = len(missing), publicIDs(missing, maxIDs)
	report.Late, report.LateIDs = len(late), publicIDs(late, maxIDs)
	report.Extra, report.ExtraIDs = len(extra), publicIDs(extra, maxIDs)
	report.Unknown, report.UnknownIDs = len(unknown), publicIDs(unknown, maxIDs)
	report.Ended, report.EndedIDs = len(ended), publicIDs(ended, maxIDs)
	return report, nil
}

// inBoth returns the ids that are in a and in b, sorted. It removes the others from a.
func inBoth(a, b map[string]bool) []string {
	maps.DeleteFunc(a, func(id string, _ bool) bool { return !b[id] })
	return slices.Sorted(maps.Keys(a))
}

// publicIDs returns the first maxIDs ids, with store.CallbackPrefix.
func publicIDs(ids []string, maxIDs int) []string {
	out := make([]string, min(len(ids), maxIDs))
	for i := range out {
		out[i] = store.CallbackPrefix + ids[i]
	}
	return out
}

// splitExtra splits items without an open row into those without any row in SQL, and those with a terminal
// row.
func (ix *Index) splitExtra(ctx context.Context, extra []string) (unknown, ended []string, err error) {
	for page := range slices.Chunk(extra, PageRows) {
		known, err := ix.o.Store.Known(ctx, page)
		if err != nil {
			return nil, nil, fmt.Errorf("look for the rows of extra items: %w", err)
		}
		has := make(map[string]bool, len(known))
		for _, id := range known {
			has[id] = true
		}
		for _, id := range page {
			if has[id] {
				ended = append(ended, id)
			} else {
				unknown = append(unknown, id)
			}
		}
	}
	return unknown, ended, nil
}

// compare makes one comparison: it looks up all open rows in the index, and then scans the index for items
// without an open row.
func (ix *Index) compare(ctx context.Context) (drift, error) {
	d := drift{missing: map[string]bool{}, late: map[string]bool{}, extra: map[string]bool{}}
	marks, err := ix.watermarks(ctx)
	if err != nil {
		return d, err
	}
	err = ix.walkOpen(ctx, span{until: schedule.Forever}, func(rows []store.OpenRow) error {
		d.rows += len(rows)
		d.beyond += len(rows)
		rows = ix.within(rows, marks)
		d.beyond -= len(rows)
		refs := make([]schedule.Ref, len(rows))
		for i := range rows {
			refs[i] = schedule.Ref{ID: rows[i].ID, Lane: rows[i].LaneID}
		}
		positions, err := ix.o.Schedule.Lookup(ctx, refs)
		if err != nil {
			return fmt.Errorf("look up open rows: %w", err)
		}
		late := lateSlack.Milliseconds()
		for i, p := range positions {
			switch {
			case p.Place == schedule.Absent:
				d.missing[rows[i].ID] = true
			case p.Place == schedule.Delayed &&
				p.Due > max(rows[i].DueAt, rows[i].ClaimUntil, ix.clock.Now())+late:
				d.late[rows[i].ID] = true
			}
		}
		return nil
	})
	if err != nil {
		return d, err
	}
	for shard := range ix.o.Schedule.Shards() {
		if err := ix.lookForExtra(ctx, shard, &d); err != nil {
			return d, err
		}
	}
	return d, nil
}

// within returns the rows that the index must hold. A row that is due after its shard's loaded time may be
// missing, unless it is due by now.
func (ix *Index) within(rows []store.OpenRow, marks []schedule.Watermark) []store.OpenRow {
	now := ix.clock.Now()
	return slices.DeleteFunc(rows, func(r store.OpenRow) bool {
		return r.DueAt > max(marks[ix.o.Schedule.ShardOf(r.LaneID)].Loaded, now)
	})
}

// lookForExtra finds items of a shard whose row is terminal or missing.
func (ix *Index) lookForExtra(ctx context.Context, shard int, d *drift) error {
	cursor := ""
	for {
		page, err := ix.o.Schedule.Scan(ctx, shard, cursor, PageRows)
		if err != nil {
			return fmt.Errorf("scan shard %d: %w", shard, err)
		}
		ids := make([]string, len(page.Found))
		for i := range page.Found {
			ids[i] = page.Found[i].ID
		}
		rows, err := ix.o.Store.ByID(ctx, ids)
		if err != nil {
			return fmt.Errorf("read rows of shard %d: %w", shard, err)
		}
		open := make(map[string]bool, len(rows))
		for i := range rows {
			open[rows[i].ID] = true
		}
		d.items += len(ids)
		for _, id := range ids {
			if !open[id] {
				d.extra[id] = true
			}
		}
		cursor = page.Next
		if cursor == "" {
			return nil
		}
	}
}

// auditTime bounds one audit; the next one continues where it ended. An index of a million items takes a few
// audits.
const auditTime = 20 * time.Second

// An auditCursor is where the audit continues: a page of a shard.
type auditCursor struct {
	shard  int
	cursor string
}

// Audit checks the records of the index against each other and repairs them, until all are checked or its
// time is over. It does not read SQL: the sweep and Verify compare the index with SQL.
func (ix *Index) Audit(ctx context.Context) error {
	for started := time.Now(); time.Since(started) < auditTime; {
		at := &ix.auditAt
		page, err := ix.o.Schedule.Audit(ctx, at.shard, at.cursor)
		if err != nil {
			at.cursor = ""
			ix.health.Failed("audit", err)
			return fmt.Errorf("audit shard %d: %w", at.shard, err)
		}
		if page.Repaired > 0 {
			ix.metrics.repaired.Add(float64(page.Repaired))
			ix.log.Warn("audit repaired the index", "shard", at.shard, "repaired", page.Repaired)
		}
		at.cursor = page.Next
		if at.cursor == "" {
			at.shard = (at.shard + 1) % ix.o.Schedule.Shards()
			if at.shard == 0 {
				return nil
			}
		}
		// The pause leaves the index to claims.
		process.Sleep(ctx, 5*time.Millisecond)
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}
