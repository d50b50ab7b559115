package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A busySource adds entries to the audit after its first query.
type busySource struct {
	sqldb.Source
	add func()
}

func (s *busySource) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := s.Source.QueryContext(ctx, query, args...)
	if s.add != nil {
		s.add()
		s.add = nil
	}
	return rows, err
}

// TestAuditPageIsCompleteWhileEntriesAreAdded: a page that is read window by window has every matching entry,
// also if others are added meanwhile.
func TestAuditPageIsCompleteWhileEntriesAreAdded(t *testing.T) {
	db := openSQLite(t)
	n := 0
	add := func(actor string, entries int) {
		for range entries {
			n++
			err := db.AppendAudit(t.Context(), store.AuditEntry{
				Project: store.DefaultProject, Actor: actor, Action: "lane.pause", Object: "lane",
				At: int64(n),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range []store.AuditFilter{{Actor: "wanted", Limit: 50}, {Action: "lane.", Limit: 50}} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			add("wanted", 40)
			before, err := db.Audit(t.Context(), store.DefaultProject, f)
			if err != nil {
				t.Fatal(err)
			}
			source := &busySource{Source: db.sql.Reads, add: func() { add("other", 30) }}
			l := auditListing{
				read:    sqldb.ReadFrom(t.Context(), source, "read audit"),
				budget:  pageBudget{rows: 2000, first: 10},
				project: store.DefaultProject, AuditFilter: f, left: 20,
			}
			f.After = ""
			var after []store.AuditEntry
			for pages := 0; ; pages++ {
				if err := l.run(); err != nil || pages > 100 {
					t.Fatal(pages, err)
				}
				after = append(after, l.page.Entries...)
				if l.page.Next == "" {
					break
				}
				l.After, l.left, l.page.Entries = l.page.Next, 20, nil
			}
			seen := map[string]bool{}
			for _, e := range after {
				if seen[e.ID] {
					t.Errorf("entry %s at %d is there twice", e.ID, e.At)
				}
				seen[e.ID] = true
			}
			for _, e := range before.Entries {
				if !seen[e.ID] {
					t.Errorf("entry %s at %d is missing", e.ID, e.At)
				}
			}
		})
	}
}
