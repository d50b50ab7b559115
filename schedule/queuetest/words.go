package queuetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// This file reads the words of transcripts and prints replies.

var ranged = regexp.MustCompile(`^([a-z]*)(\d+)\.\.[a-z]*(\d+)(.*)$`)

// expand replaces ranges and the star by names.
func (s *Transcript) expand(words []string) []string {
	var all []string
	for _, word := range words {
		if rest, ok := strings.CutPrefix(word, "*"); ok {
			for _, name := range s.last {
				all = append(all, name+rest)
			}
		} else if m := ranged.FindStringSubmatch(word); m != nil {
			from, _ := strconv.Atoi(m[2])
			to, _ := strconv.Atoi(m[3])
			for n := from; n <= to; n++ {
				number := strconv.Itoa(n)
				all = append(all, m[1]+number+strings.Replace(m[4], "#", number, 1))
			}
		} else {
			all = append(all, word)
		}
	}
	return all
}

// elements reads the elements of an operation. An element without an id is a lane.
func (s *Transcript) elements(of reflect.Type, words []string) reflect.Value {
	all := reflect.MakeSlice(of, 0, len(words))
	for _, word := range s.expand(words) {
		v := reflect.New(of.Elem())
		e := v.Elem()
		name, rest, some := strings.Cut(word, ",")
		switch {
		case e.Kind() == reflect.Int64:
			e.SetInt(s.lanes[s.lane(name)])
		case !e.FieldByName("ID").IsValid():
			e.FieldByName("Lane").SetInt(s.lanes[s.lane(name)])
		default:
			share(e, reflect.ValueOf(s.item(name)))
		}
		if some {
			s.assign(v.Interface(), strings.Split(rest, ","))
		}
		if known, ok := s.known[name]; ok {
			share(reflect.ValueOf(&known).Elem(), e)
			s.known[name] = known
		}
		all = reflect.Append(all, e)
	}
	return all
}

// item returns the last known values of an item. An unknown item is new, in the first lane and due now.
func (s *Transcript) item(name string) schedule.Lease {
	known, ok := s.known[name]
	if !ok {
		known.Item = s.fixture.item(0, 0)
		s.known[name], s.names[known.ID] = known, name
	}
	return known
}

// Context returns the context of the calls.
func (s *Transcript) Context() context.Context { return s.ctx }

// ID returns the id of the item with that name.
func (s *Transcript) ID(name string) string { return s.item(name).ID }

// Named replaces ids by the names of their items.
func (s *Transcript) Named(text string) string {
	for id, name := range s.names {
		text = strings.ReplaceAll(text, id, name)
	}
	return text
}

func (s *Transcript) nameOf(id string) string { return cmp.Or(s.names[id], id) }

// share copies the fields that both structs have, with the same name and type.
func share(to, from reflect.Value) {
	for _, field := range reflect.VisibleFields(from.Type()) {
		target := to.FieldByName(field.Name)
		if !field.Anonymous && target.IsValid() && target.Type() == field.Type {
			target.Set(from.FieldByIndex(field.Index))
		}
	}
}

// assign sets the fields that words name: "due=1h", "retry", or a value of a type's own, such as "ack".
func (s *Transcript) assign(to any, words []string) {
	v := reflect.ValueOf(to).Elem()
	for _, word := range words {
		name, text, some := strings.Cut(word, "=")
		field := v.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
		switch {
		case field.IsValid():
			s.set(field, name, text)
		case !some:
			value := s.valueOf(word)
			for _, one := range reflect.VisibleFields(v.Type()) {
				if one.Type == value.Type() {
					v.FieldByIndex(one.Index).Set(value)
				}
			}
		default:
			s.Fatalf("%T has no %s", to, name)
		}
	}
}

// set sets a field to the value of a text.
func (s *Transcript) set(field reflect.Value, name, text string) {
	var value any
	var err error
	switch field.Interface().(type) {
	case bool:
		value = text != "no"
	case string:
		value = text
	case int:
		value, err = strconv.Atoi(text)
	case int64:
		switch name {
		case "lane":
			value = s.lanes[s.lane(text)]
		case "version":
			value, err = strconv.ParseInt(text, 10, 64)
		default:
			value = s.at(text)
		}
	case time.Duration:
		value = s.duration(text)
	case schedule.LeaseRef:
		value = s.ref(text)
	case []string:
		var ids []string
		for _, one := range strings.Split(text, "+") {
			ids = append(ids, s.item(one).ID)
		}
		value = ids
	case []schedule.EndedLease:
		var ended []schedule.EndedLease
		for _, one := range s.expand(strings.Split(text, "+")) {
			name, next, some := strings.Cut(one, ">")
			e := schedule.EndedLease{LeaseRef: s.ref(name)}
			if some {
				e.Next = s.ref(next)
			}
			ended = append(ended, e)
		}
		value = ended
	case []schedule.LanePrefetch:
		var lanes []schedule.LanePrefetch
		for _, one := range strings.Split(text, "+") {
			lane, most, _ := strings.Cut(one, ":")
			n, err := strconv.Atoi(most)
			s.noErr(err)
			lanes = append(lanes, schedule.LanePrefetch{Lane: s.lanes[s.lane(lane)], Max: n})
		}
		value = lanes
	default:
		s.Fatalf("%s is a %s", name, field.Type())
	}
	s.noErr(err)
	field.Set(reflect.ValueOf(value))
}

// ref returns the lease of an item, "a", or the same item under another token, "a:token".
func (s *Transcript) ref(text string) schedule.LeaseRef {
	name, token, some := strings.Cut(text, ":")
	known := s.item(name)
	ref := known.LeaseRef()
	if some {
		ref.Token = token
	}
	return ref
}

// lane returns the index of a lane in the fixture's lanes. The text counts from 1.
func (s *Transcript) lane(text string) int {
	n, err := strconv.Atoi(text)
	s.noErr(err)
	if n > len(s.lanes) {
		s.findLanes(n)
	}
	return n - 1
}

func (s *Transcript) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	s.noErr(err)
	return d
}

// at reads a time: zero, forever, or a duration from now.
func (s *Transcript) at(text string) int64 {
	switch text {
	case "zero":
		return 0
	case "forever":
		return schedule.Forever
	}
	return s.Now() + s.duration(text).Milliseconds()
}

// values are the words for values that need no field name.
var values = map[string][]any{
	"ack": {schedule.Ack}, "reschedule": {schedule.Reschedule}, "divert": {schedule.Divert},
	"bury":   {schedule.Bury},
	"locked": {schedule.LockConflict}, "outofturn": {schedule.OutOfTurn},
	"nosignal": {schedule.NoSignal}, "answered": {schedule.Answered}, "timedout": {schedule.TimedOut},
	"unanswered": {schedule.Unanswered},
	"applied":    {schedule.Applied}, "stale": {schedule.Stale}, "gone": {schedule.Gone, schedule.MovedGone},
	"moved": {schedule.MovedIt}, "blocked": {schedule.MovedBlocked},
	"absent": {schedule.Position{}}, "none": {schedule.Waiter{}},
	"unproven": {schedule.Unproven}, "answering": {schedule.Answering}, "timingout": {schedule.TimingOut},
}

func (s *Transcript) valueOf(word string) reflect.Value {
	if values[word] == nil {
		s.Fatalf("there is no value %s", word)
	}
	return reflect.ValueOf(values[word][0])
}

// A line is the reply to the element of that name.
type line struct{ name, text string }

// joined prints lines. Names in a row with the same text share one line.
func joined(lines []line) string {
	var b strings.Builder
	for len(lines) > 0 {
		n := slices.IndexFunc(lines, func(l line) bool { return l.text != lines[0].text })
		if n < 0 {
			n = len(lines)
		}
		var names []string
		for _, l := range lines[:n] {
			names = append(names, l.name)
		}
		fmt.Fprintf(&b, "%s: %s\n", strings.Join(short(names), " "), lines[0].text)
		lines = lines[n:]
	}
	return b.String()
}

var numbered = regexp.MustCompile(`^([a-z]+)(\d+)$`)

// short writes three or more names with consecutive numbers as a range.
func short(names []string) []string {
	var all []string
	for len(names) > 0 {
		n := 1
		if m := numbered.FindStringSubmatch(names[0]); m != nil {
			first, _ := strconv.Atoi(m[2])
			for n < len(names) && names[n] == m[1]+strconv.Itoa(first+n) {
				n++
			}
		}
		if n > 2 {
			all = append(all, names[0]+".."+names[n-1])
		} else {
			all = append(all, names[:n]...)
		}
		names = names[n:]
	}
	return all
}

// Format prints a reply.
func (s *Transcript) Format(answer any) string {
	var lines []line
	switch a := answer.(type) {
	case nil:
		return ""
	case string:
		return a
	case schedule.Claimed:
		for _, l := range a.Leases {
			lines = append(lines, line{s.nameOf(l.ID), s.fields(reflect.ValueOf(l))})
		}
		a.Leases = nil
		return joined(lines) + s.fields(reflect.ValueOf(a))
	case []schedule.Found:
		for _, found := range a {
			lines = append(lines, line{s.nameOf(found.ID), s.fields(reflect.ValueOf(found))})
		}
		return joined(lines)
	case schedule.Waiter:
		if a.ID != "" {
			return s.nameOf(a.ID)
		}
	}
	for word, all := range values {
		if slices.Contains(all, answer) {
			return word
		}
	}
	if v := reflect.ValueOf(answer); v.Kind() == reflect.Struct {
		return cmp.Or(s.fields(v), "nothing")
	}
	return fmt.Sprint(answer)
}

// fields prints the fields of a struct that are not zero, without ids, tokens, the sequence number and the
// first lane.
func (s *Transcript) fields(v reflect.Value) string {
	var all []string
	for _, field := range reflect.VisibleFields(v.Type()) {
		value, name := v.FieldByIndex(field.Index), strings.ToLower(field.Name)
		if field.Anonymous || value.IsZero() || slices.Contains([]string{"id", "token", "seq"}, name) {
			continue
		}
		switch x := value.Interface().(type) {
		case bool:
			all = append(all, name)
		case int64:
			if text := s.number(name, x); text != "" {
				all = append(all, text)
			}
		case map[string]int64:
			for _, key := range slices.Sorted(maps.Keys(x)) {
				if x[key] != 0 {
					all = append(all, fmt.Sprintf("%s=%d", key, x[key]))
				}
			}
		default:
			all = append(all, name+"="+s.Format(x))
		}
	}
	return strings.Join(all, " ")
}

// counts are the fields that are numbers but no times.
var counts = []string{"delayed", "ready", "leased", "runnablelanes", "blockedlanes", "openbreakers", "locks",
	"waiters", "quarantined"}

// number prints a lane, a count or a time. It omits the index's clock if it is that of the harness.
func (s *Transcript) number(name string, n int64) string {
	switch {
	case name == "lane":
		n = int64(slices.Index(s.lanes, n) + 1)
		if n == 1 {
			return ""
		}
	case name == "now" && n == s.Now():
		return ""
	case n >= schedule.MaxTime:
		return name + "=forever"
	case !slices.Contains(counts, name):
		return name + "=" + (time.Duration(n-s.Now()) * time.Millisecond).String()
	}
	return fmt.Sprintf("%s=%d", name, n)
}
