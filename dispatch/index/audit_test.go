package index

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A slowAudit is an index of two shards whose pages take a second each.
type slowAudit struct {
	Schedule
	pages int
	calls []string
}

func (*slowAudit) Shards() int { return 2 }

func (s *slowAudit) Audit(_ context.Context, shard int, cursor string) (schedule.AuditPage, error) {
	time.Sleep(time.Second)
	s.calls = append(s.calls, fmt.Sprint(shard, ":", cursor))
	page := 0
	if cursor != "" {
		if _, err := fmt.Sscan(cursor, &page); err != nil {
			return schedule.AuditPage{}, err
		}
	}
	page++
	if page == s.pages {
		return schedule.AuditPage{}, nil
	}
	return schedule.AuditPage{Next: fmt.Sprint(page)}, nil
}

// An index that takes longer than one audit is audited to its end by the next ones, and then again from its
// beginning.
func TestALongAuditGoesOnWhereTheLastOneEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := &slowAudit{pages: 30}
		e := &Index{o: Options{Schedule: index}, metrics: newMetrics(process.Metrics{})}
		for run := range 4 {
			began := time.Now()
			if err := e.Audit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > auditTime+2*time.Second {
				t.Errorf("run %d took %s, its time is %s", run, took, auditTime)
			}
		}
		seen := map[string]int{}
		for _, at := range index.calls {
			seen[at]++
		}
		if len(seen) != 2*index.pages {
			t.Fatalf("%d pages of %d were audited: %v", len(seen), 2*index.pages, index.calls)
		}
		if seen["0:"] != 2 || seen["1:29"] != 1 {
			t.Errorf("the second audit did not begin after the first one's end: %v", index.calls)
		}
	})
}
