package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// reconcileWindow is how many callbacks one statement counts. It bounds the time of a statement, however
	// long the span is.
	reconcileWindow = 20_000
	// compareRefs is how many references one statement searches for.
	compareRefs = 1000
)

// Reconcile counts the project's callbacks that were accepted in a span by their states, for each group and
// in the order of the groups. Accepted counts rows of requests, and the states are those of callbacks: one
// transaction writes both rows, and one removes both. So a difference means that rows were lost. It finds no
// callback that was never accepted. Callbacks that retention has removed are not counted.
//
// It returns a store.InvalidError for an unknown grouping or too many groups.
func (db *DB) Reconcile(
	ctx context.Context, project string, q store.ReconcileQuery,
) ([]store.Reconciliation, error) {
	read := db.read(ctx, "reconcile")
	sums := make(map[string]*store.Reconciliation)
	column, name, err := grouping(q.GroupBy)
	if err != nil {
		return nil, err
	}
	for _, day := range spans(q) {
		// A day without callbacks is a group, too.
		label := name
		if q.GroupBy == "day" {
			label = func(string) (string, error) { return day.name, nil }
			sums[day.name] = &store.Reconciliation{Group: day.name}
		}
		if err := db.inWindows(read, project, day.from, day.to, func(after, end string) error {
			if err := count(read, sums, column, label, project, after, end); err != nil {
				return err
			}
			if q.MaxGroups > 0 && len(sums) > q.MaxGroups {
				return invalid("group_by", fmt.Sprintf("makes more than %d groups: choose a shorter span, "+
					"or a label with fewer values", q.MaxGroups))
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if q.GroupBy == "" && len(sums) == 0 {
		sums[""] = new(store.Reconciliation)
	}
	all := make([]store.Reconciliation, 0, len(sums))
	for _, b := range sums {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b store.Reconciliation) int { return cmp.Compare(a.Group, b.Group) })
	return all, nil
}

// grouping returns the column whose text decides the group of a callback, and the function that names the
// group of a text.
func grouping(by string) (column string, name func(text string) (string, error), err error) {
	same := func(text string) (string, error) { return text, nil }
	if label, ok := strings.CutPrefix(by, "label:"); ok && label != "" {
		return "labels", func(text string) (string, error) {
			var labels map[string]string
			err := decode("labels", text, &labels)
			return labels[label], err
		}, nil
	}
	switch by {
	case "", "day":
		return "''", same, nil
	case "topic":
		return "topic", same, nil
	case "endpoint":
		return "endpoint_id", same, nil
	case "lane":
		return "COALESCE((SELECT lanes.key FROM lanes WHERE lanes.id = callbacks.lane), '')", same, nil
	}
	return "", nil, invalid("group_by", "must be topic, endpoint, lane, day or label:NAME")
}

// A span is a period of time. It has a name if it is a day.
type span struct {
	name     string
	from, to int64
}

// spans returns the days of the query if it groups by day, and else the whole span. The first and the last
// day are cut off at the ends of the span.
func spans(q store.ReconcileQuery) []span {
	if q.GroupBy != "day" {
		return []span{{from: q.From, to: q.To}}
	}
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	var days []span
	for from := q.From; from < q.To; {
		at := time.UnixMilli(from).In(zone)
		next := store.LocalTime(at.Year(), at.Month(), at.Day()+1, 0, 0, zone).UnixMilli()
		days = append(days, span{at.Format(time.DateOnly), from, min(next, q.To)})
		from = next
	}
	return days
}

// inWindows calls look for one window of the span after the other. A window is the ids above after and up to
// end.
func (db *DB) inWindows(read sqldb.Read, project string, from, to int64,
	look func(after, end string) error) error {
	after, last := idsFrom(from), idsFrom(to)
	for {
		// The last of the next reconcileWindow ids, or last if there are fewer.
		end, more, err := sqldb.Value[string](read,
			`SELECT id FROM requests WHERE project = $1 AND id > $2 AND id < $3
			ORDER BY id LIMIT 1 OFFSET $4`, project, after, last, db.reconcileWindow-1)
		if err != nil {
			return err
		}
		if !more {
			end = last
		}
		if err := look(after, end); err != nil || !more {
			return err
		}
		after = end
	}
}

// count adds the callbacks of one window to the sums. The primary key of requests serves it.
func count(
	read sqldb.Read, sums map[string]*store.Reconciliation, column string,
	name func(string) (string, error), project, after, end string,
) error {
	type counted struct {
		text  string
		state store.State
		n     int64
	}
	all, err := sqldb.Select(read, func(c *counted) sqldb.Columns {
		return sqldb.Columns{col(column+" AS grouped", &c.text),
			col("COALESCE(callbacks.state, '')", &c.state), col("COUNT(*)", &c.n)}
	}, `FROM requests LEFT JOIN callbacks ON callbacks.id = requests.id
		WHERE requests.project = $1 AND requests.id > $2 AND requests.id <= $3
		GROUP BY grouped, callbacks.state`, project, after, end)
	if err != nil {
		return err
	}
	for _, c := range all {
		group, err := name(c.text)
		if err != nil {
			return err
		}
		b := sums[group]
		if b == nil {
			b = &store.Reconciliation{Group: group}
			sums[group] = b
		}
		b.Accepted += c.n
		switch c.state {
		case store.Succeeded:
			b.Succeeded += c.n
		case store.Dead:
			b.Dead += c.n
		case store.Canceled:
			b.Canceled += c.n
		case store.Scheduled:
			b.Open += c.n
		}
	}
	return nil
}

// Compare compares a list of references with the callbacks that were accepted in the span. It returns the
// references without a callback, and up to most references of callbacks that are not in the list.
func (db *DB) Compare(ctx context.Context, project string, from, to int64, refs []string,
	most int) (store.Comparison, error) {
	var c store.Comparison
	listed := make(map[string]bool, len(refs)) // true if a callback was found
	for _, ref := range refs {
		listed[ref] = false
	}
	names := sortedKeys(listed)
	read := db.read(ctx, "compare")
	for batch := range slices.Chunk(names, compareRefs) {
		found, err := sqldb.Values[string](read, `SELECT i.ref FROM $i WHERE EXISTS (
			SELECT 1 FROM requests
			WHERE requests.project = $1 AND requests.ref = i.ref AND requests.ref <> ''
				AND requests.id > $2 AND requests.id < $3)`, project, idsFrom(from), idsFrom(to),
			sqldb.Texts("ref", batch))
		if err != nil {
			return c, err
		}
		for _, ref := range found {
			listed[ref] = true
		}
	}
	for _, ref := range refs {
		if found, first := listed[ref]; !first {
			continue // the list has it twice
		} else if found {
			c.Matched++
		} else {
			c.Missing = append(c.Missing, ref)
		}
		delete(listed, ref)
	}
	for _, ref := range names {
		listed[ref] = true
	}
	extra := make(map[string]bool)
	err := db.inWindows(read, project, from, to, func(after, end string) error {
		accepted, err := sqldb.Values[string](read, `SELECT DISTINCT ref FROM requests
			WHERE project = $1 AND id > $2 AND id <= $3`, project, after, end)
		for _, ref := range accepted {
			switch {
			case ref == "" || listed[ref] || extra[ref]:
			case len(extra) < most:
				extra[ref] = true
			default:
				c.More = true
			}
		}
		return err
	})
	if err != nil {
		return store.Comparison{}, err
	}
	c.Extra = sortedKeys(extra)
	return c, nil
}
