package dispatch_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCourses runs the scripts in testdata/courses line by line: actions of people, receivers, SQL and the
// index, and the state of the engine after them. README.md there describes the commands.
func TestCourses(t *testing.T) {
	transcript.Files(t, "testdata/courses/*.txt", func(t *testing.T, text string) string {
		return transcript.Cases(t, text, func(t *testing.T, _, body string) (played string) {
			bubble(t, func(t *testing.T) {
				c := &course{
					T: t, began: time.Now(), next: with(nil), others: map[string]*fixture{},
					ids:    map[string]string{},
					things: map[string]func() any{}, called: map[string]int{},
				}
				played = transcript.Lines(body, c.answer)
			})
			return played
		})
	})
}

// A course is one script in a synctest bubble.
type course struct {
	*testing.T
	began time.Time
	// next builds the engine that starts next. fixture is the engine that lines apply to, others are further
	// ones by name.
	next setup
	*fixture
	others map[string]*fixture
	// ids and things are the named objects of the course: their ids, and functions that read them.
	ids    map[string]string
	things map[string]func() any
	wire   gauge
	log    lines
	link   store.AuditLink // the kept link of the audit chain
	called map[string]int  // the number of calls at the last "calls" command
}

// arguments are the arguments of a line: words, and named ones such as tiers=1s,2s.
type arguments struct {
	*course
	words []string
	named map[string]string
	rest  string // the text of the line after the command
}

var (
	word  = regexp.MustCompile(`[a-z_]+='[^']*'|\S+`)
	named = regexp.MustCompile(`^([a-z_]+)='?(.*?)'?$`)
	ulid  = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`)
	timed = regexp.MustCompile(`(At|Since|Until)$`) // fields that are times
)

// answer runs a line and returns its output, in which ids are replaced by their names.
func (c *course) answer(line string) string {
	c.Helper()
	if other, rest, ok := strings.Cut(line, ": "); ok && c.others[other] != nil {
		defer func(b *fixture) { c.fixture = b }(c.fixture)
		c.fixture, line = c.others[other], rest
	}
	verb, rest, _ := strings.Cut(line, " ")
	a := arguments{course: c, named: map[string]string{}, rest: rest}
	for _, w := range word.FindAllString(rest, -1) {
		if m := named.FindStringSubmatch(w); m != nil {
			a.named[m[1]] = m[2]
		} else {
			a.words = append(a.words, w)
		}
	}
	do := verbs[verb]
	if do == nil {
		do = checks[verb]
	}
	if do == nil {
		c.Fatalf("%s: no line begins with %q", line, verb)
	}
	said := do(a)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(c.ids))) {
		said = strings.ReplaceAll(said, c.ids[name], name)
	}
	return ulid.ReplaceAllString(said, "…")
}

// silent wraps a command without output.
func silent(do func(a arguments)) func(arguments) string {
	return func(a arguments) string {
		do(a)
		return ""
	}
}

func (a arguments) has(name string) bool { return a.named[name] != "" }

// text returns a named argument, or nil.
func (a arguments) text(name string) *string {
	if value, ok := a.named[name]; ok {
		return &value
	}
	return nil
}

func (a arguments) list(name string) *[]string {
	if value, ok := a.named[name]; ok {
		return new(strings.Split(value, ","))
	}
	return nil
}

// number returns a named whole number, or zero.
func (a arguments) number(name string) int {
	if !a.has(name) {
		return 0
	}
	return must(strconv.Atoi(a.named[name]))
}

// duration returns a named duration, or zero.
func (a arguments) duration(name string) time.Duration {
	if !a.has(name) {
		return 0
	}
	return must(time.ParseDuration(a.named[name]))
}

func (a arguments) maybeDuration(name string) *time.Duration {
	if !a.has(name) {
		return nil
	}
	return new(a.duration(name))
}

// moment converts a duration from now, "ever" or "off" to Unix milliseconds.
func moment(text string) int64 {
	switch text {
	case "ever":
		return store.Forever
	case "off":
		return 0
	}
	return soon(must(time.ParseDuration(text)))
}

// within fails the test unless a number, or a duration in seconds, is within a span such as 1..60 or 0s..1m.
func (c *course) within(what string, got float64, span string) {
	c.Helper()
	low, high, _ := strings.Cut(span, "..")
	size := func(text string) float64 {
		if d, err := time.ParseDuration(text); err == nil {
			return d.Seconds()
		}
		return must(strconv.ParseFloat(text, 64))
	}
	between(c.fixture, what, got, size(low), size(high))
}

// counted returns a number, or checks it if the last word is a span.
func (a arguments) counted(what string, got int) string {
	if n := len(a.words); n > 0 && strings.Contains(a.words[n-1], "..") {
		a.within(what, float64(got), a.words[n-1])
		return ""
	}
	return strconv.Itoa(got)
}

// names expands names: one with * at the end stands for all numbered names that begin with it.
func (c *course) names(meant ...string) (list []string) {
	for _, name := range meant {
		stem, many := strings.CutSuffix(name, "*")
		if !many && name != "" {
			list = append(list, name)
		}
		for i := 1; many && c.ids[stem+strconv.Itoa(i)] != ""; i++ {
			list = append(list, stem+strconv.Itoa(i))
		}
	}
	return list
}

// known returns the ids of names.
func (c *course) known(names ...string) (list []string) {
	c.Helper()
	for _, name := range c.names(names...) {
		list = append(list, c.id(name))
	}
	return list
}

func (c *course) id(name string) string {
	c.Helper()
	id := c.ids[name]
	if id == "" {
		c.Fatalf("nothing is called %s", name)
	}
	return id
}

// call names an id; read returns its object.
func (c *course) call(name, id string, read func(id string) any) {
	c.ids[name] = id
	c.things[name] = func() any { return read(id) }
}

func (c *course) callback(name, id string) {
	c.call(name, id, func(id string) any { return c.get(id) })
}

// thing returns the object of a name. a#2 is the second attempt of a.
func (c *course) thing(name string) any {
	c.Helper()
	synctest.Wait()
	if name, number, ok := strings.Cut(name, "#"); ok {
		return c.attempts(c.id(name))[must(strconv.Atoi(number))-1]
	}
	if c.things[name] == nil {
		c.Fatalf("nothing is called %s", name)
	}
	return c.things[name]()
}

// when formats a time as the duration since the course began.
func (c *course) when(at int64) string {
	switch at {
	case 0:
		return "never"
	case store.Forever:
		return "for ever"
	}
	return "+" + time.UnixMilli(at).Sub(c.began).String()
}

// field returns a field of a value by its path.
func field(v any, path string) any {
	r := reflect.Indirect(reflect.ValueOf(v))
	for name := range strings.SplitSeq(path, ".") {
		r = reflect.Indirect(r).FieldByName(name)
	}
	return r.Interface()
}

// whole returns a field of a named object as a whole number.
func (c *course) whole(name, path string) int {
	c.Helper()
	return int(reflect.ValueOf(field(c.thing(name), path)).Int())
}

// fields formats fields of a value; without names, those that are not zero.
func (c *course) fields(v any, names ...string) string {
	if len(names) == 0 {
		for f, value := range reflect.Indirect(reflect.ValueOf(v)).Fields() {
			if !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0) {
				names = append(names, f.Name)
			}
		}
	}
	parts := make([]string, len(names))
	for i, name := range names {
		value := field(v, name)
		switch f := reflect.ValueOf(value); {
		case timed.MatchString(name) && f.Kind() == reflect.Int64:
			value = c.when(f.Int())
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Uint8:
			value = string(f.Bytes())
		case f.IsZero() && f.Kind() == reflect.String:
			value = "none"
		}
		parts[i] = fmt.Sprintf("%s %v", name, value)
	}
	return strings.Join(parts, ", ")
}

// refused formats an error: the names of the invalid fields, or its text.
func (c *course) refused(err error) string {
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		var fields []string
		for _, f := range wrong.Fields {
			if strings.Contains(f.Message, "card number") {
				f.Field += " (card number)"
				c.check(!strings.Contains(err.Error(), "4111"), "the number is repeated: %s", err)
			}
			fields = append(fields, f.Field)
		}
		return "wrong: " + strings.Join(fields, ", ")
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// same formats the results of several objects, or one result if all are equal.
func (c *course) same(ids, become []string) string {
	if alike := slices.Compact(slices.Clone(become)); len(alike) == 1 {
		return alike[0]
	}
	var each strings.Builder
	for i, id := range ids {
		each.WriteString(strings.TrimSpace(id+" "+become[i]) + "\n")
	}
	return each.String()
}

func (c *course) processes(list func() []store.Dispatcher) string {
	synctest.Wait()
	var text strings.Builder
	for _, p := range list() {
		p.Host = ""
		text.WriteString(c.fields(p) + "\n")
	}
	return text.String()
}

// verifyAudit verifies the chain. "kept" expects the kept link, "after" continues after it, and "of" expects
// a wrong hash.
func (a arguments) verifyAudit() string {
	var after, expect store.AuditLink
	switch {
	case slices.Contains(a.words, "kept"):
		expect = a.link
	case slices.Contains(a.words, "after"):
		after = a.link
	case a.has("of"):
		expect = store.AuditLink{Seq: a.link.Seq, Hash: strings.Repeat("0", len(a.link.Hash))}
	}
	got := must(a.engine.VerifyAudit(a.Context(), after, expect))
	if got.Broken != nil {
		return a.fields(*got.Broken, "Fault", "Seq")
	}
	said := fmt.Sprintf("%d are sound of %d", got.Checked, got.Head.Link.Seq)
	if got.Next != nil {
		a.link = *got.Next
		said += ", and more follow"
	}
	return said
}

// activity sums up the counts of a span, of that many lanes or, with zero, of the project.
func (c *course) activity(span store.Span, lanes int64) string {
	var sum store.Activity
	for lane := min(1, lanes); lane <= lanes; lane++ {
		rows := must(c.db.Activity(c.Context(), project, lane, span, 0, store.Forever))
		for i := range rows {
			sum.Add(&rows[i])
		}
	}
	late, took := int64(0), int64(0)
	for i := range sum.Lateness {
		late, took = late+sum.Lateness[i], took+sum.Took[i]
	}
	sum = store.Activity{Accepted: sum.Accepted, Succeeded: sum.Succeeded, Failed: sum.Failed, Dead: sum.Dead,
		Unknown: sum.Unknown}
	return fmt.Sprintf("%s; %d were timed for lateness, %d for how long they took", c.fields(sum), late, took)
}

// outcomeOf returns the state of a callback with its reason and its counted attempts.
func outcomeOf(c store.Callback) string {
	return strings.Join(strings.Fields(fmt.Sprint(c.State, " ", c.Reason, " ", c.AttemptCount)), " ")
}

// block formats a block of a callback or a lane.
func (c *course) block(block control.Block, names ...string) string {
	return c.fields(block, names...) + "\n  " + block.Detail + "\n  " + block.Cure
}
