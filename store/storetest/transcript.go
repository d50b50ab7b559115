package storetest

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// transcripts runs the transcripts of testdata. A file is a group; its cases begin with "== NAME", each on an
// empty store. Lines of a case are calls, and what is answered follows them, indented.
//
//	[NAME =] METHOD WORD…    a method of the store, or an operation of [operations]
//
// A word is an argument in its place, field=value or field (true), in 'quotes' if it has spaces. What is left
// out is usual: the project, the time, the actor, a limit of 100, and what the drafts of the fixture have.
// Between « and » a word is as Go reads it in quotes, such as «\x00». @NAME is the id of a row; the id that a
// call gives is named by NAME. Times count from now: now, +5s, -1h, forever.
//
// Of callbacks, endpoints, schedules and the like an answer has what differs from what was last said of them,
// by whatever call: "field=" is no value any more. Of other rows it has what is not zero.
func transcripts(t *testing.T, o Options, open func(t *testing.T) Store) {
	transcript.Files(t, "../storetest/testdata/*.txt", func(t *testing.T, text string) string {
		group := path.Base(t.Name())
		return transcript.Cases(t, text, func(t *testing.T, name, body string) string {
			if !o.has(path.Join(group, name)) {
				return body
			}
			f := newFixture(t, open(t))
			defer f.reportPanic()
			s := &script{
				fixture: f, ids: make(map[string]string), names: make(map[string]string),
				lanes: make(map[int64]int),
				said:  make(map[string]map[string]string), versions: make(map[string]int64),
				stamps: make(map[string][]*store.Stamped), waiting: make(map[string]bool),
				results: make(map[string]store.Result), firings: make(map[string]store.PlannedRun),
			}
			got := s.run(body)
			f.checkCounters()
			return got
		})
	})
}

// A script is a case of a transcript that is being run.
type script struct {
	*fixture
	ids, names map[string]string // ids by name, names by id
	lanes      map[int64]int     // numbers of lanes in the order in which they are met
	said       map[string]map[string]string
	versions   map[string]int64
	stamps     map[string][]*store.Stamped // by name
	waiting    map[string]bool             // for the result of the last stamp
	results    map[string]store.Result     // the last of each
	firings    map[string]store.PlannedRun // that were read, by schedule
	fired      int
	read       store.OutcomeCursor // how far the feed was read
}

// run makes the calls of a case and returns it with what was answered.
func (s *script) run(body string) string {
	var out strings.Builder
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, " ") {
			continue
		}
		out.WriteString(line)
		words := each(split(line), func(word string) string { return transcript.Expand(s, word) })
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		name := ""
		if len(words) > 2 && words[1] == "=" {
			name, words = words[0], words[2:]
		}
		var answers []any
		if do := operations[words[0]]; do != nil {
			answers = do(s, words[1:])
		} else {
			answers = s.call(name, words[0], words[1:])
		}
		for _, answer := range answers {
			for _, text := range s.tell(answer) {
				out.WriteString(strings.TrimRight("  "+text, " ") + "\n")
			}
		}
	}
	return out.String()
}

// split splits a line at spaces that do not stand in single quotes.
func split(line string) (words []string) {
	quoted, begun := false, false
	for _, r := range strings.TrimSpace(line) {
		if r == ' ' && !quoted {
			begun = false
			continue
		}
		if !begun {
			words, begun = append(words, ""), true
		}
		if r == '\'' {
			quoted = !quoted
		} else {
			words[len(words)-1] += string(r)
		}
	}
	return words
}

// sentinel is the text of the error that callers look for.
func sentinel(err error) string {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) {
		return "invalid " + invalid.Fields[0].Field
	}
	for _, known := range []error{
		store.ErrNotFound, store.ErrIdempotencyMismatch, store.ErrAttempting, store.ErrPayloadPurged,
		store.ErrTerminal, store.ErrExists, store.ErrEndpointDeleted, store.ErrPollLive,
		store.ErrTooManyRedrives, store.ErrLaneQuota, errRefused,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "of the database"
}

// parameters are the names of those of the store's exported methods, behind the context: they are read from
// the sources in the working directory, which is that of the store's tests. The types of stores have names
// that end in DB.
var parameters = sync.OnceValue(func() map[string][]string {
	all := make(map[string][]string)
	for _, file := range must(filepath.Glob("*.go")) {
		for _, decl := range must(parser.ParseFile(token.NewFileSet(), file, nil,
			parser.SkipObjectResolution)).Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() ||
				!strings.HasSuffix(types.ExprString(f.Recv.List[0].Type), "DB") {
				continue
			}
			var names []string
			for _, param := range f.Type.Params.List {
				for _, name := range param.Names {
					names = append(names, name.Name)
				}
			}
			all[f.Name.Name] = names
		}
	}
	return all
})

// arguments finds a method of the store, and reads the words of a call of it.
func (s *script) arguments(method string, words []string) (m reflect.Value, args []reflect.Value) {
	m = reflect.ValueOf(s.Store).MethodByName(method)
	s.require(m.IsValid(), "there is no method or operation %s", method)
	names := parameters()[method][1:]
	args = []reflect.Value{reflect.ValueOf(s.ctx())}
	var positional, fields []string
	given := make(map[string]string)
	for _, word := range words {
		field, value, has := strings.Cut(word, "=")
		switch {
		case has && slices.Contains(names, field):
			given[field] = value
		case has || strings.HasPrefix(word, "."):
			fields = append(fields, strings.TrimPrefix(word, "."))
		default:
			positional = append(positional, word)
		}
	}
	for i, name := range names {
		v := reflect.New(m.Type().In(i + 1)).Elem()
		value, explicit := given[name]
		switch usual := reflect.ValueOf(s.usual(name, v.Type())); {
		case explicit:
			s.set(v, value)
		case v.Type() == reflect.TypeFor[[]store.Draft]():
			v.Set(reflect.ValueOf([]store.Draft{s.draft()}))
			s.assign(v.Index(0), fields)
		case v.Kind() == reflect.Func:
			v.Set(s.change(v.Type(), fields, slices.Contains(positional, "refuse")))
		case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[store.Actor]():
			if usual.IsValid() {
				v.Set(usual)
			}
			s.assign(v, fields)
		case usual.IsValid():
			v.Set(usual)
		case v.Kind() == reflect.Pointer && len(fields) > 0 && v.Type().Elem().Kind() == reflect.Struct:
			v.Set(reflect.New(v.Type().Elem()))
			s.assign(v.Elem(), fields)
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
			for _, word := range positional {
				v.Set(reflect.Append(v, reflect.ValueOf(s.known(s.named(name, word)))))
			}
		case len(positional) > 0:
			s.set(v, s.named(name, positional[0]))
			positional = positional[1:]
		}
		args = append(args, v)
	}
	return m, args
}

// call calls a method of the store.
func (s *script) call(name, method string, words []string) (answers []any) {
	m, args := s.arguments(method, words)
	if name != "" {
		s.name(name, idOf(args))
	}
	results := m.Call(args)
	last := results[len(results)-1]
	if !last.IsNil() {
		return []any{last.Interface()}
	}
	for _, r := range results[:len(results)-1] {
		if name != "" && s.ids[name] == "" {
			s.name(name, idOf([]reflect.Value{r}))
		}
		answers = append(answers, r.Interface())
	}
	return answers
}

// usual is what an argument is that a line leaves out; nil if there is nothing usual.
func (s *script) usual(name string, of reflect.Type) any {
	switch name {
	case "project":
		return project
	case "now":
		return s.now
	case "limit":
		return 100
	}
	switch reflect.New(of).Interface().(type) {
	case *store.Actor:
		return actor
	case **store.Actor:
		return &actor
	case *store.Draft:
		return s.draft()
	case *store.Retry:
		return store.Retry{Ladder: store.Once, Now: s.now}
	case *store.Endpoint:
		return s.newEndpoint()
	case *store.EndpointFilter:
		return store.EndpointFilter{Limit: 100, Now: s.now}
	case *store.LaneFilter:
		return store.LaneFilter{Limit: 100, Now: s.now}
	case *store.Schedule:
		return s.newSchedule("")
	case *store.ScheduleFilter:
		return store.ScheduleFilter{Limit: 100}
	case *store.Secret:
		return s.secret("", "")
	case *store.Project:
		return store.Project{CreatedAt: s.now}
	case *store.Preset:
		return store.Preset{Project: project, UpdatedAt: s.now}
	case *store.Key:
		return store.Key{
			ID: s.id(), Project: project, Name: "n", Scopes: []store.Scope{store.ScopeSend, store.ScopeRead},
			Hint: "…x", CreatedAt: s.now, ExpiresAt: s.now + 1000,
		}
	case *store.Redrive:
		return store.Redrive{ID: s.id(), Project: project, CreatedAt: s.now, Shown: "{}",
			Filter: store.Filter{To: s.now + 1}}
	case *store.AuditEntry:
		return store.AuditEntry{ID: s.id(), Project: project, At: s.now, Actor: "key_1", Action: "x",
			Object: "o"}
	case *store.Retention:
		return store.Retention{Now: s.now}
	}
	return nil
}

// change is a function that sets fields, and refuses what it has done or not.
func (s *script) change(of reflect.Type, fields []string, refuses bool) reflect.Value {
	return reflect.MakeFunc(of, func(args []reflect.Value) []reflect.Value {
		s.assign(args[0].Elem(), fields)
		err := reflect.New(reflect.TypeFor[error]()).Elem()
		if refuses {
			err.Set(reflect.ValueOf(errRefused))
		}
		return []reflect.Value{err}
	})
}

// name names an id.
func (s *script) name(name, id string) {
	if id != "" {
		s.ids[name], s.names[id] = id, name
	}
}

// named is an argument, where a name may stand for an id.
func (s *script) named(parameter, word string) string {
	if id := s.ids[word]; id != "" && (parameter == "id" || parameter == "ids") {
		return id
	}
	if word == "unknown" {
		return s.id()
	}
	return word
}

// idOf is the id of the first row among values that has one.
func idOf(values []reflect.Value) string {
	for _, v := range values {
		if v.Kind() != reflect.Struct {
			continue
		}
		if id := v.FieldByName("ID"); id.IsValid() && id.Kind() == reflect.String {
			return id.String()
		}
		for _, of := range []string{"Callback", "Endpoint"} {
			if row := v.FieldByName(of); row.IsValid() && row.Kind() == reflect.Struct {
				return row.FieldByName("ID").String()
			}
		}
	}
	return ""
}
