package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// An option is one choice of a field. Data: its text is not a text of ours.
type option struct {
	Value, Text  string
	Data, Chosen bool
}

// The kinds of field.
const (
	lineField     = "text"
	textField     = "textarea"
	choiceField   = "select"
	checkField    = "checkbox"
	checksField   = "checks" // several of Options
	passwordField = "password"
	momentField   = "datetime-local"
)

// A field is one thing that a form asks for.
type field struct {
	Name, Kind string
	// Label and Help are texts; Help may be empty.
	Label, Help string
	Value       string
	Options     []option
	Required    bool
	// Secret: what was typed is never shown again.
	Secret bool
	// Mono: it is read by programs. Rows is the height of a textarea.
	Mono bool
	Rows int
	// Checked is for a checkbox, Chosen for checks.
	Checked bool
	// Suggest is an example of what can be typed.
	Suggest string
	// Wrong is what is wrong with what was typed; empty: nothing.
	Wrong string
}

// ID is the field's in the page.
func (f field) ID() string { return "f-" + strings.ReplaceAll(f.Name, ".", "-") }

// Describes lists the ids of what is said of the field.
func (f field) Describes() string {
	var ids []string
	if f.Help != "" {
		ids = append(ids, f.ID()+"-help")
	}
	if f.Wrong != "" {
		ids = append(ids, f.ID()+"-wrong")
	}
	return strings.Join(ids, " ")
}

// A form is a page that asks before something is done: it names what will happen.
type form struct {
	base
	// Action is where it is sent; empty: the page's own path. Back is where giving up leads.
	Action, Back string
	// Says are sentences, each of what will happen; Warnings, of what of it one might not expect. Facts are
	// what it is about.
	Says     []string
	Warnings []string
	Facts    []fact
	// Fields are asked for; Hidden are sent along.
	Fields []field
	Hidden []named
	Submit string
	// Danger: it cannot be undone.
	Danger bool
	// Wrong is what was wrong as a whole, WrongFields what was wrong with fields that the form does not have.
	Wrong       string
	WrongFields []store.FieldError
	// Preview is shown below the fields: what was counted or calculated.
	Preview []string
	// PreviewSubmit is a second button that only shows a preview; empty: there is none.
	PreviewSubmit string
}

// A fact is a value with its name. Data: the value is not a text of ours. Link is where it leads; empty:
// nowhere.
type fact struct {
	Name, Value, Link string
	Data              bool
}

// Target is where the form is sent.
func (f *form) Target() string { return cmp.Or(f.Action, f.r.url.Path) }

// ask is a field whose label is the text of the key; the text of KEY.help, if there is one, is its help.
func (b *base) ask(name, kind, key string) field {
	x := field{Name: name, Kind: kind, Label: b.T(key)}
	if b.Has(key + ".help") {
		x.Help = b.T(key + ".help")
	}
	return x
}

// askMono asks for a line that programs read, such as the suggestion.
func (b *base) askMono(name, key, suggest string) field {
	x := b.ask(name, lineField, key)
	x.Mono, x.Suggest = true, suggest
	return x
}

// askMoment asks for a moment in the viewer's zone.
func (b *base) askMoment(name, key string) field {
	return field{Name: name, Kind: momentField, Label: b.T(key), Help: b.T("form.zone", "zone", b.zone.name)}
}

// askReason asks for a reason, which the audit keeps.
func (b *base) askReason() field {
	return field{
		Name: "reason", Kind: lineField, Label: b.T("form.reason"), Help: b.T("form.reason.help"),
		Value: b.r.form.Get("reason"),
	}
}

// choose offers words, whose texts are those of PREFIX and the word; without a prefix they are data.
func choose[W ~string](b *base, prefix string, chosen W, words ...W) (options []option) {
	for _, word := range words {
		o := option{Value: string(word), Text: string(word), Data: prefix == "", Chosen: word == chosen}
		if !o.Data {
			o.Text = b.T(prefix + o.Text)
		}
		options = append(options, o)
	}
	return options
}

// orAny is what a filter offers: any, or one of the options.
func (b *base) orAny(chosen string, options []option) []option {
	return append([]option{{Text: b.T("filter.any"), Chosen: chosen == ""}}, options...)
}

// tell adds facts: pairs of the key of a name and a value that is data.
func (f *form) tell(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Facts = append(f.Facts, fact{Name: f.T(pairs[i]), Value: pairs[i+1], Data: true})
	}
}

// field finds a field by its name. A form need not have it: what it asks for depends on the state of what it
// is about, and on the scopes of the viewer's key.
func (f *form) field(name string) (*field, bool) {
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			return &f.Fields[i], true
		}
	}
	return nil, false
}

// fill puts what was typed into the fields.
func (f *form) fill() {
	for i := range f.Fields {
		x := &f.Fields[i]
		values, given := f.r.form[x.Name]
		switch {
		case x.Kind == checkField:
			x.Checked = given
		case x.Kind == checksField, x.Kind == choiceField:
			for j := range x.Options {
				x.Options[j].Chosen = slices.Contains(values, x.Options[j].Value)
			}
		case given && x.Kind != passwordField && !x.Secret:
			x.Value = values[0]
		}
	}
}

// An act is something that a viewer can have done: a form that says what it is, and what does it.
type act struct {
	path  string
	scope store.Scope
	// ask builds the form; do does what was asked for, and says where to go. Either may return the errors of
	// the engine.
	ask func(r *request) (*form, error)
	do  func(r *request) (*answer, error)
}

// acts makes the routes of acts: GET shows the form, POST does it, or shows the form again with what is
// wrong.
func (u *UI) acts(all ...act) []Route {
	var routes []Route
	for _, a := range all {
		routes = append(routes,
			still(a.path, a.scope, func(r *request) (*answer, error) {
				f, err := a.ask(r)
				if err != nil {
					return nil, err
				}
				return show("form", f)
			}),
			post(a.path, a.scope, func(r *request) (*answer, error) { return u.act(r, a) }))
	}
	return routes
}

// A kind is what the acts on objects of one kind have in common.
type kind[T any] struct {
	// path begins the addresses of the forms, and texts the keys of their texts; section is that of the menu.
	path, texts, section string
	// prefix is that of the id in the path; id is how a request names an object that has none there, else
	// nil.
	prefix string
	id     func(r *request) (string, error)
	find   func(r *request, id string) (T, error)
	// begin says in a form what the object is.
	begin func(f *form, of T)
	// page is where to go back to; nil: to the object's own page.
	page func(r *request) string
}

// object is the id of the object that a request is about.
func (k *kind[T]) object(r *request) (string, error) {
	if k.id != nil {
		return k.id(r)
	}
	return r.bareID(k.prefix)
}

// back is the page to go back to.
func (k *kind[T]) back(r *request) string {
	if k.page != nil {
		return k.page(r)
	}
	return Root + strings.TrimSuffix(strings.Replace(k.path, ":id", r.params["id"], 1), "/")
}

// from finds an object in the store or the engine.
func from[T any](
	find func(ctx context.Context, project, id string) (T, error),
) func(r *request, id string) (T, error) {
	return func(r *request, id string) (T, error) { return find(r.ctx, r.who.Project, id) }
}

// An actOn is an act on an object. Its texts are NAME.title, NAME.says, NAME.submit and NAME.done.
type actOn[T any] struct {
	name string
	// scope is what a key must have; empty: store.ScopeOperate.
	scope store.Scope
	// ask completes the form, which asks for a reason at its end, if not before; nil: for nothing else.
	ask func(f *form, of T) error
	// do does what was asked for, and the object's page says that it was done. An act that answers otherwise
	// has answer instead.
	do     func(r *request, id string) error
	answer func(r *request, id string) (*answer, error)
	// to is where an act leads that leaves no page of the object; empty: it leaves one.
	to string
	// danger: it cannot be undone. path ends the address, where it is not the name.
	danger bool
	path   string
}

// actsOn makes the routes of acts on objects of one kind.
func actsOn[T any](u *UI, k kind[T], all []actOn[T]) []Route {
	var made []act
	for _, a := range all {
		key := k.texts + a.name
		ask := func(r *request) (*form, error) {
			id, err := k.object(r)
			if err != nil {
				return nil, err
			}
			of, err := k.find(r, id)
			if err != nil {
				return nil, err
			}
			f := u.form(r, k.section, key, k.back(r))
			f.Danger = a.danger
			k.begin(f, of)
			if a.ask != nil {
				err = a.ask(f, of)
			}
			if _, asked := f.field("reason"); !asked {
				f.Fields = append(f.Fields, f.askReason())
			}
			return f, err
		}
		do := func(r *request) (*answer, error) {
			id, err := k.object(r)
			if err != nil {
				return nil, err
			}
			if a.answer != nil {
				return a.answer(r, id)
			}
			if err := a.do(r, id); err != nil {
				return nil, err
			}
			if a.to != "" {
				return u.went(r, Root+a.to, key+".done")
			}
			return u.did(r, k.back(r), r.lang.text(key+".done"))
		}
		made = append(made, act{k.path + cmp.Or(a.path, a.name), cmp.Or(a.scope, store.ScopeOperate), ask,
			do})
	}
	return u.acts(made...)
}

// form begins a form. Its texts are KEY.title, KEY.says, KEY.submit, and more that it says: KEY and each of
// says. back is where giving up leads, where the request does not say.
func (u *UI) form(r *request, section, key, back string, says ...string) *form {
	f := &form{base: u.base(r, section, key+".title"), Back: r.back(back),
		Submit: r.lang.text(key + ".submit")}
	for _, name := range append([]string{".says"}, says...) {
		f.Says = append(f.Says, f.T(key+name))
	}
	return f
}

// did goes back to where an act was asked for, and says that it was done.
func (u *UI) did(r *request, otherwise, text string) (*answer, error) {
	u.say(r, text)
	return redirect(r.back(otherwise))
}

// went goes to a page that the act has led to, and says that it was done.
func (u *UI) went(r *request, to, key string) (*answer, error) {
	u.say(r, r.lang.text(key))
	return redirect(to)
}

// act does what was asked for. What is wrong with what was typed, or no longer possible, is said at the form.
func (u *UI) act(r *request, a act) (*answer, error) {
	var done *answer
	var err error
	if len(r.value("reason")) > maxReason {
		err = invalid("reason", r.lang.text("form.reason.long", "n", maxReason))
	} else {
		done, err = a.do(r)
		if err == nil {
			return done, nil
		}
	}
	problem := httperr.From(err)
	if problem.Status != http.StatusUnprocessableEntity && problem.Status != http.StatusConflict {
		return nil, err
	}
	f, askErr := a.ask(r)
	if askErr != nil {
		return nil, errors.Join(err, askErr)
	}
	f.fill()
	if problem.Status == http.StatusConflict {
		f.Wrong = f.Or("trouble.", problem.Code)
	}
	for _, wrong := range problem.Errors {
		f.refuse(store.FieldError(wrong))
	}
	return &answer{status: problem.Status, template: "form", page: f}, nil
}

// refuse says what is wrong at the field, or at the one that it is a part of.
func (f *form) refuse(wrong store.FieldError) {
	name := wrong.Field
	x, found := f.field(name)
	for !found && strings.ContainsAny(name, ".[") {
		name = name[:strings.LastIndexAny(name, ".[")]
		x, found = f.field(name)
	}
	if !found {
		f.WrongFields = append(f.WrongFields, wrong)
		return
	}
	says := wrong.Message
	if name != wrong.Field {
		says = wrong.Field + " " + says
	}
	if x.Wrong != "" { // a field of many parts may be wrong in several
		says = x.Wrong + "; " + says
	}
	x.Wrong = says
}

// maxReason is the most bytes of a reason that the audit keeps, as of the API.
const maxReason = 1024

// preview answers with the form and what its preview says, without doing it.
func preview(f *form, says ...string) (*answer, error) {
	f.fill()
	f.Preview = says
	return show("form", f)
}

// invalid is an error that names one field.
func invalid(name, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: name, Message: message}}}
}
