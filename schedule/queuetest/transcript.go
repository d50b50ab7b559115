package queuetest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Transcripts runs the transcripts whose files match the pattern, each on its own harness. A file has cases.
// A case begins with "== NAME" on an index that was reset. Its lines are operations, and the indented lines
// after an operation are the reply; see package transcript.
//
// An operation has elements such as "a,lane=2,due=1h,retry": the name of an item, and what differs from its
// last known values. a1..a9 are nine items, and * are the items of the last claim. In a1..a9,lane=# each item
// has the lane of its number. Times count from now; zero and forever are absolute. Replies omit the first
// lane and zero values.
//
// more adds operations to those of [Transcript.Do].
func Transcripts(t *testing.T, pattern string, open func(t *testing.T) Harness, more map[string]Operation) {
	transcript.Files(t, pattern, func(t *testing.T, text string) string {
		f := newFixture(t, open(t))
		return transcript.Cases(t, text, func(t *testing.T, _, body string) string {
			f.tb = t
			return newTranscript(f, more).Play(body)
		})
	})
}

// An Operation executes the words after its name. It returns the reply: nil, a text, or a value whose fields
// are printed.
type Operation func(s *Transcript, words []string) (any, error)

// A Transcript is a running case. Its Index is the one under test.
type Transcript struct {
	*fixture
	known map[string]schedule.Lease // by name: the last known values of an item
	names map[string]string         // by id
	last  []string                  // the names of the items of the last claim
	more  map[string]Operation
	// Memo is a value that an operation keeps for its next execution.
	Memo any
}

// NewTranscript returns a transcript for an index, and resets the index.
func NewTranscript(t testing.TB, h Harness) *Transcript {
	return newTranscript(newFixture(t, h), nil)
}

func newTranscript(f *fixture, more map[string]Operation) *Transcript {
	f.reset()
	f.ids, f.locks = 0, true
	return &Transcript{fixture: f, known: make(map[string]schedule.Lease), names: make(map[string]string),
		more: more}
}

// Play executes the operations of a text, and returns the text with the replies.
func (s *Transcript) Play(body string) string {
	var b strings.Builder
	for line := range strings.Lines(body) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, " "):
			continue
		case len(words) == 0 || words[0] == "#":
			b.WriteString(line)
			continue
		}
		b.WriteString(line)
		answer, err := s.Do(words[0], words[1:])
		text := s.Format(answer)
		if err != nil {
			text = "error: " + sentinel(err)
		}
		for one := range strings.Lines(text) {
			b.WriteString("  " + strings.TrimSpace(one) + "\n")
		}
	}
	return b.String()
}

// sentinel returns the text of the error that callers of an index check for.
func sentinel(err error) string {
	for _, known := range []error{schedule.ErrLost, schedule.ErrRebuilding, schedule.ErrTooMany,
		schedule.ErrInvalid, schedule.ErrOlder, schedule.ErrNewer} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// Do executes an operation.
func (s *Transcript) Do(name string, words []string) (any, error) {
	ix := s.Index
	if method := methods[name]; method != "" {
		return s.batch(reflect.ValueOf(ix).MethodByName(method), words)
	}
	switch name {
	case "claim":
		return s.doClaim(words)
	case "rounds":
		return s.rounds(words)
	case "flood":
		return s.flood(s.duration(words[0]))
	case "drain":
		return s.drain(words[0])
	case "answer":
		times, err := strconv.Atoi(words[1])
		s.noErr(err)
		s.answer(s.lane(words[0]), times, s.valueOf(words[2]).Interface().(schedule.Signal))
		return nil, nil
	case "scan":
		found := s.scan(0)
		slices.SortFunc(found, func(a, b schedule.Found) int { return cmp.Compare(a.ID, b.ID) })
		return found, nil
	case "stats":
		return s.sizes()
	case "watermark":
		return ix.Watermark(s.ctx, 0)
	case "advance":
		a := schedule.Advance{After: s.watermark().Loader}
		s.assign(&a, words)
		return ix.MoveWatermark(s.ctx, 0, a)
	case "loaded":
		return ix.Loaded(s.ctx, 0, words[0], s.at(words[1]))
	case "pass":
		s.pass(s.duration(words[0]))
	case "jump":
		s.Advance(s.duration(words[0]))
	case "promote":
		s.promoteAll()
	case "audit":
		repaired, err := Audit(s.ctx, ix)
		return fmt.Sprintf("%d repaired", repaired), err
	case "has":
		return s.has()
	case "generation":
		s.generation++
		ix.SetGeneration(s.generation)
	case "reset", "open":
		for shard := range ix.Shards() {
			err := ix.Open(s.ctx, shard)
			if name == "reset" {
				err = ix.Reset(s.ctx, shard, s.generation)
			}
			if err != nil {
				return nil, err
			}
		}
	default:
		if s.more[name] == nil {
			s.Fatalf("there is no operation %s", name)
		}
		return s.more[name](s, words)
	}
	return nil, nil
}

// methods are the operations on elements, by their words.
var methods = map[string]string{
	"ensure": "Ensure", "settle": "Settle", "extend": "Extend", "cancel": "Cancel", "lookup": "Lookup",
	"move": "Move", "acquire": "Acquire", "release": "Release", "adopt": "Adopt", "set": "SetLanes",
	"state": "LaneStates",
}

// batch executes an operation on elements, and returns the reply to each, by its name.
func (s *Transcript) batch(do reflect.Value, words []string) (string, error) {
	var lines []line
	all, names := s.elements(do.Type().In(1), words), s.expand(words)
	for i := 0; i < all.Len(); i += schedule.MaxBatch {
		page := all.Slice(i, min(i+schedule.MaxBatch, all.Len()))
		replies, err := splitResults(do.Call([]reflect.Value{reflect.ValueOf(s.ctx), page}))
		if err != nil {
			return "", err
		}
		for j := 0; replies.IsValid() && j < replies.Len(); j++ {
			name, _, _ := strings.Cut(names[i+j], ",")
			lines = append(lines, line{name, s.Format(replies.Index(j).Interface())})
		}
	}
	return joined(lines), nil
}

// splitResults splits the results of a method into its reply, if it has one, and its error.
func splitResults(results []reflect.Value) (answer reflect.Value, err error) {
	last := len(results) - 1
	err, _ = results[last].Interface().(error)
	if last > 0 {
		answer = results[0]
	}
	return answer, err
}

// has reports whether the shard has the last generation.
func (s *Transcript) has() (any, error) {
	generation, err := s.Index.Generation(s.ctx, 0)
	if err != nil {
		return err.Error(), nil
	}
	return fmt.Sprintf("it is the last one: %t", generation == s.generation), nil
}

// doClaim claims. Values that the words omit are those of wide.
func (s *Transcript) doClaim(words []string) (any, error) {
	req := s.wide()
	s.assign(&req, words)
	c, err := s.Index.Claim(s.ctx, 0, req)
	if err != nil {
		return nil, err
	}
	s.last = nil
	for _, l := range c.Leases {
		if l.Token != req.Token {
			s.Fatalf("%+v is not leased under %s", l, req.Token)
		}
		name := s.nameOf(l.ID)
		s.known[name] = l
		s.last = append(s.last, name)
	}
	return c, nil
}

// rounds claims a number of times, acknowledges everything, and returns how many items each lane gave.
func (s *Transcript) rounds(words []string) (any, error) {
	times, err := strconv.Atoi(words[0])
	s.noErr(err)
	fresh, retries := make(map[int64]int), make(map[int64]int)
	for range times {
		if _, err := s.doClaim(words[1:]); err != nil {
			return nil, err
		}
		var leases []schedule.Lease
		for _, name := range s.last {
			l := s.known[name]
			leases = append(leases, l)
			if l.Retry {
				retries[l.Lane]++
			} else {
				fresh[l.Lane]++
			}
		}
		s.ack(leases, schedule.NoSignal)
	}
	var lines []line
	for i, lane := range s.lanes {
		if n, m := fresh[lane], retries[lane]; n+m > 0 {
			lines = append(lines, line{fmt.Sprint("lane", i+1), fmt.Sprintf("%d fresh, %d retries", n, m)})
		}
	}
	return joined(lines), nil
}

// drain claims and acknowledges all items that a scan finds, which must be at least `least`. Each must be
// claimed once. One second passes between two claims.
func (s *Transcript) drain(least string) (any, error) {
	left := make(map[string]bool)
	for _, found := range s.scan(0) {
		left[found.ID] = true
	}
	if n, err := strconv.Atoi(least); err != nil || len(left) < n {
		s.Fatalf("a scan met %d items, want %s; %v", len(left), least, err)
	}
	for range 2000 {
		leases := s.take()
		for _, l := range leases {
			if !left[l.ID] {
				s.Fatalf("%s is claimed twice, or no scan met it", l.ID)
			}
			delete(left, l.ID)
		}
		s.ack(leases, schedule.Answered)
		if len(left) == 0 {
			return "all that a scan met, once", nil
		}
		s.pass(time.Second)
	}
	return fmt.Sprintf("%d items are left", len(left)), nil
}

// flood claims for a time and answers everything at once. Like a claimer it sleeps until the next event of
// each reply.
func (s *Transcript) flood(d time.Duration) (any, error) {
	leases, claims, empty := 0, 0, 0
	for end := s.Now() + d.Milliseconds(); s.Now() < end; claims++ {
		c := s.claim(s.wide())
		s.ack(c.Leases, schedule.Answered)
		leases += len(c.Leases)
		if len(c.Leases) == 0 {
			empty++
		}
		if !c.More {
			s.pass(time.Duration(max(c.Next-s.Now(), 1)) * time.Millisecond)
		}
	}
	return fmt.Sprintf("%d leases of %d claims, %d of them in vain", leases, claims, empty), nil
}
