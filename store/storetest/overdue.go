package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// overdue counts overdue callbacks by lane, and lists those whose lock may be held. Where a call ends, and so
// the number of calls, must not matter.
func (s *script) overdue(_ []string) (answers []any) {
	type group struct {
		key  string
		wait store.OverdueWait
	}
	sums := make(map[group]store.OverdueLane)
	var locked []string
	var after store.Cursor
	for more := true; more; {
		page, err := s.OverdueLanes(s.ctx(), after, s.now, s.now)
		s.ok(err)
		var lanes []int64
		for _, l := range page.Lanes {
			first, known := sums[group{l.Key, l.Wait}]
			if known {
				l.Count, l.OldestDue = l.Count+first.Count, min(l.OldestDue, first.OldestDue)
			}
			sums[group{l.Key, l.Wait}] = l
			lanes = append(lanes, l.ID)
		}
		rows, err := s.OverdueLocked(s.ctx(), after, page.End, s.now, lanes, 100)
		s.ok(err)
		locked = append(locked, rowIDs(rows)...)
		after, more = page.End, page.More
	}
	var lines []string
	for _, l := range sums {
		text := fmt.Sprintf("%s: %d, the first due %s", s.nameIDs(l.Key), l.Count,
			s.number(l.OldestDue, false)) + []string{"", ", locked", ", behind"}[l.Wait]
		if l.PausedUntil > s.now {
			text += ", paused until " + s.number(l.PausedUntil, false)
		}
		if l.Disabled {
			text += ", disabled"
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	for _, line := range lines {
		answers = append(answers, line)
	}
	return append(answers, "locked: "+strings.TrimSpace(joined(s, locked)))
}
