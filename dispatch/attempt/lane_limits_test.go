package attempt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// TestLaneLimits runs the cases of testdata/lanes.txt on lane 1. That file explains the lines.
func TestLaneLimits(t *testing.T) {
	t.Parallel()
	transcript.File(t, "testdata/lanes.txt", func(t *testing.T, text string) string {
		return transcript.Cases(t, text, func(_ *testing.T, _, body string) string {
			c := &laneCourse{
				limits: newLaneLimits(func(int64) int { return 0 }, 1),
				leases: map[string]ready{},
				outs:   map[string]ended{},
			}
			return transcript.Lines(body, c.answer)
		})
	})
}

// A laneCourse is one case. Leases have names.
type laneCourse struct {
	limits *laneLimits
	asked  time.Time // when the last claim was sent
	leases map[string]ready
	outs   map[string]ended
}

// leaseEnds are the ways in which attempts end.
var leaseEnds = map[string]ended{
	"answered": {signal: schedule.Answered}, "unanswered": {signal: schedule.Unanswered},
	"times-out": {signal: schedule.TimedOut}, "holds": {signal: schedule.Answered, hold: 1}, "untried": {},
}

// answer runs a line, and returns what it prints.
func (c *laneCourse) answer(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	leases, how := leaseNames(rest)
	switch verb {
	case "shards":
		c.limits = newLaneLimits(func(lane int64) int { return int(lane % 2) }, 2)
	case "ask":
		return c.ask()
	case "get":
		return c.get(leases, how)
	case "claim":
		c.ask()
		return c.get(leases, how)
	case "fail":
		return putBack(c.limits.failClaim(0))
	case "start":
		return c.start(leases, how != "now")
	case "stopped":
		r := c.leases[leases[0]]
		return fmt.Sprint(c.limits.stopped(&r))
	case "end":
		return c.end(leases, how)
	case "drop": // by a copy: attemptAlone hands one back if its stamp fails
		return putBack(c.limits.drop(new(*c.leases[leases[0]].lease)))
	case "settle":
		return c.settle(leases)
	case "known":
		return putBack(c.limits.resultsKnown(c.ended(leases)))
	case "rolled":
		c.limits.rolledBack(0)
	case "reset":
		return putBack(c.limits.resetPlaces())
	case "changed":
		return putBack(c.limits.settingsChanged([]schedule.LaneSetting{{Lane: 7}, {Lane: 1}}))
	case "lane":
		s := &c.limits.shards[0]
		said := fmt.Sprint(len(s.successors), " successors")
		if n := s.lanes[1]; n != nil {
			said += fmt.Sprintf(", %d placed, %d free, %d uncounted, %d stamping, %d waiting, full %t",
				n.placed(), n.free(), len(n.uncounted), len(n.stamping), len(n.waiting), n.full)
		}
		return said
	default:
		return "no line begins so"
	}
	return ""
}

// leaseNames returns the leases that a line names: 5, or 1..4 for all of these. The last word may say how.
func leaseNames(text string) (names []string, how string) {
	for word := range strings.FieldsSeq(text) {
		first, last, many := strings.Cut(word, "..")
		from, err := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		switch {
		case many:
			for ; from <= to; from++ {
				names = append(names, strconv.Itoa(from))
			}
		case err == nil || strings.HasSuffix(word, "'"):
			names = append(names, word)
		default:
			how = word
		}
	}
	return names, how
}

func (c *laneCourse) ask() string {
	c.asked = time.Now()
	stamping := map[schedule.LeaseRef]bool{}
	if n := c.limits.shards[0].lanes[1]; n != nil {
		stamping = maps.Clone(n.stamping)
	}
	named, prefetch := c.limits.beginClaim(0)
	var said []string
	for _, e := range named {
		next := e.Next.ID
		if stamping[e.Next] {
			next = "one that is being stamped"
		}
		said = append(said, follows(e.ID, next))
	}
	for _, p := range prefetch {
		said = append(said, fmt.Sprint("prefetches ", p.Max))
	}
	return strings.Join(said, ", ")
}

func (c *laneCourse) get(names []string, how string) string {
	leases := make([]schedule.Lease, len(names))
	for i, name := range names {
		id, later := strings.CutSuffix(name, "'")
		leases[i] = schedule.Lease{Item: schedule.Item{ID: id, Lane: 1}, Prefetched: how == "prefetched",
			Full: how != "short"}
		if later {
			leases[i].Token = "later"
		}
		c.leases[name] = ready{lease: &leases[i], claimed: c.asked}
		c.outs[name] = ended{lease: &leases[i]}
	}
	again, back := c.limits.endClaim(0, leases, how == "short")
	return strings.TrimSpace(map[bool]string{true: "again "}[again] + putBack(back))
}

func (c *laneCourse) start(names []string, mayWait bool) string {
	var said []string
	for _, name := range names {
		r := c.leases[name]
		said = append(said, map[turn]string{begins: "begins", waits: "waits",
			goesBack: "goes back"}[c.limits.start(&r, mayWait)])
	}
	return strings.Join(slices.Compact(said), ", ")
}

func (c *laneCourse) end(names []string, how string) string {
	var said []string
	for _, name := range names {
		out := leaseEnds[how]
		out.lease = c.leases[name].lease
		c.outs[name] = out
		next, back, claim := c.limits.end(&out, time.Millisecond)
		if next != nil {
			said = append(said, next.lease.ID+" begins")
		}
		if len(back) > 0 {
			said = append(said, putBack(back))
		}
		if claim >= 0 {
			said = append(said, fmt.Sprint("claims of shard ", claim))
		}
	}
	return strings.Join(said, ", ")
}

// ended returns the results of these attempts.
func (c *laneCourse) ended(names []string) (outs []ended) {
	for _, name := range names {
		outs = append(outs, c.outs[name])
	}
	return outs
}

func (c *laneCourse) settle(names []string) string {
	settlements := settlementsOf(c.ended(names))
	c.limits.addSuccessors(settlements)
	said := make([]string, len(settlements))
	for i := range settlements {
		said[i] = follows(settlements[i].ID, settlements[i].Next.ID)
	}
	return strings.Join(said, ", ")
}

// follows prints a named lease with its successor.
func follows(id, next string) string {
	if next == "" {
		return id
	}
	return id + "→" + next
}

func putBack(back []ready) string {
	var ids []string
	for _, r := range back {
		ids = append(ids, r.lease.ID)
	}
	if ids == nil {
		return ""
	}
	return strings.Join(ids, " ") + " put back"
}
