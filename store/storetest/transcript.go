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

// transcripts runs the transcripts of testdata. A file is a group of cases. A case begins with "== NAME" and
// has an empty store. Its lines are calls, and the results of a call follow it, indented.
//
//	[NAME =] METHOD WORD…    a method of the store, or one of [operations]
//
// A word is an argument, a field=value, or a field that becomes true. A word with spaces stands in 'quotes'.
// Missing arguments have defaults: the project, the time, the actor, a limit of 100, and the fields of the
// fixture's drafts. Text between « and » is read as a Go string, such as «\x00». @NAME is the id of a row.
// "NAME =" gives that name to the id that the call returns. Times are relative: now, +5s, -1h, forever.
//
// For callbacks, endpoints, schedules and other tracked rows, a result has the fields that changed since the
// row was last printed. "field=" means that the field is now zero. For other rows it has all fields that are
// not zero.
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
				lanes:   make(map[int64]int),
				printed: make(map[string]map[string]string), versions: make(map[string]int64),
				stamps: make(map[string][]*store.Stamped), waiting: make(map[string]bool),
				results: make(map[string]store.Result), planned: make(map[string]store.PlannedRun),
			}
			got := s.run(body)
			f.checkCounters()
			return got
		})
	})
}

// A script runs one case of a transcript.
type script struct {
	*fixture
	ids, names map[string]string // ids by name, names by id
	lanes      map[int64]int     // numbers of lanes, in the order of their first appearance
	printed    map[string]map[string]string
	versions   map[string]int64
	stamps     map[string][]*store.Stamped // all stamps of each callback, by name
	waiting    map[string]bool             // callbacks whose last stamp has no result yet
	results    map[string]store.Result     // the last result of each callback
	planned    map[string]store.PlannedRun // that were read, by schedule
	runNumber  int
	read       store.OutcomeCursor // the last outcome that was read from the feed
}

// run makes the calls of a case, and returns the case with the results.
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
			for _, text := range s.print(answer) {
				out.WriteString(strings.TrimRight("  "+text, " ") + "\n")
			}
		}
	}
	return out.String()
}

// split splits a line at spaces outside of single quotes.
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

// sentinel returns the text of the store's error that err wraps. Texts of a database would differ between
// databases.
func sentinel(err error) string {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) {
		return "invalid " + invalid.Fields[0].Field
	}
	for _, known := range []error{
		store.ErrNotFound, store.ErrIdempotencyMismatch, store.ErrAttempting, store.ErrPayloadPurged,
		store.ErrTerminal, store.ErrExists, store.ErrEndpointDeleted, store.ErrPollLive,
		store.ErrTooManyRedrives, store.ErrLaneQuota, errRefused, store.ErrAwaitingApproval,
		store.ErrNotAwaiting, store.ErrSecondPerson, store.ErrNewerVersion, store.ErrRelayHeld,
		store.ErrRelayOrigin, store.ErrRelayActing, store.ErrTooManySources,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "of the database"
}

// parameters returns the names of the parameters of the store's exported methods. It parses the sources in
// the working directory, which is the directory of the store's tests. The name of a store's type must end in
// DB.
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

// arguments returns a method of the store, and its arguments from the words of a call.
func (s *script) arguments(method string, words []string) (m reflect.Value, args []reflect.Value) {
	m = reflect.ValueOf(s.Store).MethodByName(method)
	s.require(m.IsValid(), "no method or operation %s", method)
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
		switch byDefault := reflect.ValueOf(s.defaultOf(name, v.Type())); {
		case explicit && v.Type() == reflect.TypeFor[store.Actor]():
			v.Set(reflect.ValueOf(store.Actor{Name: value, ID: value}))
		case explicit:
			s.set(v, value)
		case v.Type() == reflect.TypeFor[[]store.Draft]():
			v.Set(reflect.ValueOf([]store.Draft{s.draft()}))
			s.assign(v.Index(0), fields)
		case v.Kind() == reflect.Func:
			v.Set(s.change(v.Type(), fields, slices.Contains(positional, "refuse")))
		case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[store.Actor]():
			if byDefault.IsValid() {
				v.Set(byDefault)
			}
			s.assign(v, fields)
		case byDefault.IsValid():
			v.Set(byDefault)
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

// call calls a method of the store and returns its results, or only its error. If name is not empty, it names
// the first id among the arguments or the results.
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

// defaultOf returns the default of an argument, or nil if it has none.
func (s *script) defaultOf(name string, of reflect.Type) any {
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
	case *store.Alert:
		return s.newAlert("")
	case *store.AlertFilter:
		return store.AlertFilter{Limit: 100}
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
		return store.Redrive{ID: s.id(), Project: project, CreatedAt: s.now, FilterText: "{}",
			Filter: store.Filter{To: s.now + 1}}
	case *store.AuditEntry:
		return store.AuditEntry{ID: s.id(), Project: project, At: s.now, Actor: "key_1", Action: "x",
			Object: "o"}
	case *store.Retention:
		return store.Retention{Now: s.now}
	}
	return nil
}

// change returns a function argument that sets fields. If refuses is set, the function then returns
// errRefused.
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

// name gives an id a name.
func (s *script) name(name, id string) {
	if id != "" {
		s.ids[name], s.names[id] = id, name
	}
}

// named returns the value of a word. For a parameter of ids, a name stands for its id. "unknown" is a new id.
func (s *script) named(parameter, word string) string {
	if id := s.ids[word]; id != "" && (parameter == "id" || parameter == "ids") {
		return id
	}
	if word == "unknown" {
		return s.id()
	}
	return word
}

// idOf returns the id of the first value that has one, or "".
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
