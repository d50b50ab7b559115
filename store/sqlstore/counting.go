package sqlstore

import (
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A counting adds up what a transaction changes of counters, by project. Its rows change a few counters again and again: the name of each is
// made as text once.
type counting map[string]*sums

// sums are what one project's counters change by.
type sums struct {
	// places says where the counter of a name, "kind:key", has its difference.
	places map[string]int
	names  []string
	values []int64
}

// count adds n times the callback, as it stands, to its project's counters.
func (d *counting) count(c *store.Callback, n int64) {
	if *d == nil {
		*d = make(counting)
	}
	s := (*d)[c.Project]
	if s == nil {
		const some = 8
		s = &sums{places: make(map[string]int, some), names: make([]string, 0, some), values: make([]int64, 0, some)}
		(*d)[c.Project] = s
	}
	var space [64]byte
	s.add(append(append(space[:0], stateCounter+":"...), c.State...), n)
	if !c.State.Terminal() {
		s.add(strconv.AppendInt(append(space[:0], tierCounter+":"...), int64(position(c)), 10), n)
		s.add(strconv.AppendInt(append(space[:0], laneCounter+":"...), c.LaneID, 10), n)
		s.add(appendHour(append(space[:0], dueCounter+":"...), c.DueAt), n)
	}
}

func (s *sums) add(name []byte, n int64) {
	if place, ok := s.places[string(name)]; ok {
		s.values[place] += n
		return
	}
	text := string(name)
	s.places[text] = len(s.names)
	s.names, s.values = append(s.names, text), append(s.values, n)
}

// text is JSON of the differences, as deltas are; empty where there are none.
func (d counting) text() string {
	var b []byte
	for _, project := range sortedKeys(d) {
		first := true
		s := d[project]
		for i, n := range s.values {
			if n == 0 {
				continue
			}
			switch {
			case first && b == nil:
				const pair = 24
				b = append(appendText(append(make([]byte, 0, pair*(len(s.values)+1)), '{'), project), ':', '{')
			case first:
				b = append(appendText(append(b, ','), project), ':', '{')
			default:
				b = append(b, ',')
			}
			first = false
			b = strconv.AppendInt(append(appendText(b, s.names[i]), ':'), n, 10)
		}
		if !first {
			b = append(b, '}')
		}
	}
	if b == nil {
		return ""
	}
	return string(append(b, '}'))
}
