package ui

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// An option is one choice of a field. Data is true if Text is data and not a text of the catalogue.
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
	timeField     = "time"
	dateField     = "date"
)

// A field is one input of a form.
type field struct {
	Name, Kind string
	// Help may be empty.
	Label, Help string
	Value       string
	Options     []option
	Required    bool
	// Secret is true if the typed value must never appear in a page.
	Secret bool
	// Mono selects a monospace font, for values that programs read. Rows is the height of a textarea.
	Mono bool
	Rows int
	// Checked is the state of a checkbox. Checks have option.Chosen instead.
	Checked bool
	// Suggest is an example value. Names are values that the field offers beside what is typed.
	Suggest string
	Names   []string
	// Wrong is the error of the typed value, or empty.
	Wrong template.HTML
	// Group is the catalogue key of the folded part of the form that has the field; empty for the open part.
	Group string
}

// ID returns the HTML id of the field.
func (f field) ID() string { return "f-" + strings.ReplaceAll(f.Name, ".", "-") }

// Describes returns the HTML ids of the field's help and error, for aria-describedby.
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

// A form is a page that confirms an act before the act is done. It says what the act will do.
type form struct {
	base
	// Action is the target path. Empty means the page's own path. Back is the link of the cancel button.
	Action, Back string
	// Effects are sentences about what the act will do, Warnings about effects that may surprise. Facts
	// describe the object.
	Effects  []string
	Warnings []string
	Facts    []fact
	// Hidden are the values of hidden fields.
	Fields []field
	Hidden []named
	Submit string
	// Danger is true if the act cannot be undone.
	Danger bool
	// Wrong is an error of the whole form. WrongFields are errors of fields that the form does not have.
	Wrong       string
	WrongFields []store.FieldError
	// Preview is shown below the fields.
	Preview []string
	// PreviewSubmit is the label of a second button that only shows a preview. Empty hides the button.
	PreviewSubmit string
	// Instead links to another form for the same object; the zero value: there is none.
	Instead problemAct
}

// A fact is a name with a value. Data is true if the value is data and not a text of the catalogue. Link
// and Title may be empty.
type fact struct {
	Name, Value, Link, Title string
	Data                     bool
}

// A fieldGroup is a part of a form. Open is true if the part must not be folded.
type fieldGroup struct {
	Name   string
	Fields []field
	Open   bool
}

// Groups returns the parts of the form. The open part comes first, and a part with an error is open.
func (f *form) Groups() []fieldGroup {
	groups := []fieldGroup{{Open: true}}
	for _, x := range f.Fields {
		at := slices.IndexFunc(groups, func(g fieldGroup) bool { return g.Name == x.Group })
		if at < 0 {
			at = len(groups)
			groups = append(groups, fieldGroup{Name: x.Group})
		}
		groups[at].Fields = append(groups[at].Fields, x)
		groups[at].Open = groups[at].Open || x.Wrong != ""
	}
	return groups
}

// Target returns the target path of the form.
func (f *form) Target() string { return cmp.Or(f.Action, f.r.url.Path) }

// ask returns a field. Its label is the text of the key; its help is the text of KEY.help, if the catalogue
// has one.
func (b *base) ask(name, kind, key string) field {
	x := field{Name: name, Kind: kind, Label: b.T(key)}
	if b.Has(key + ".help") {
		x.Help = b.T(key + ".help")
	}
	return x
}

// askMono returns a field for one line in monospace. suggest is an example value.
func (b *base) askMono(name, key, suggest string) field {
	x := b.ask(name, lineField, key)
	x.Mono, x.Suggest = true, suggest
	return x
}

// askMoment returns a field for a time in the viewer's zone.
func (b *base) askMoment(name, key string) field {
	return field{Name: name, Kind: momentField, Label: b.T(key), Help: b.T("form.zone", "zone", b.zone.name)}
}

// askReason returns a field for a reason, which goes to the audit log.
func (b *base) askReason() field {
	return field{
		Name: "reason", Kind: lineField, Label: b.T("form.reason"), Help: b.T("form.reason.help"),
		Value: b.r.form.Get("reason"),
	}
}

// choose returns options for words. The text of a word has the key prefix+word. With an empty prefix the
// words are data.
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

// orAny prepends the option "any" for the select of a filter.
func (b *base) orAny(chosen string, options []option) []option {
	return append([]option{{Text: b.T("filter.any"), Chosen: chosen == ""}}, options...)
}

// addFacts adds facts whose values are data: pairs of a name's catalogue key and a value.
func (f *form) addFacts(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Facts = append(f.Facts, fact{Name: f.T(pairs[i]), Value: pairs[i+1], Data: true})
	}
}

// field returns a field by its name. The form may lack it: the fields depend on the object's state and on the
// scopes of the viewer's key.
func (f *form) field(name string) (*field, bool) {
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			return &f.Fields[i], true
		}
	}
	return nil, false
}

// keepTyped copies the submitted values into the fields, except passwords and secrets.
func (f *form) keepTyped() {
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

// An act is something that a viewer can do: a form, and a function that does what the form says.
type act struct {
	path  string
	scope store.Scope
	// ask builds the form. do does the act and returns the response. Both may return errors of the engine.
	ask func(r *request) (*form, error)
	do  func(r *request) (*response, error)
}

// acts returns the routes of acts. GET shows the form. POST does the act, or shows the form with its errors.
func (u *UI) acts(all ...act) []Route {
	var routes []Route
	for _, a := range all {
		routes = append(routes,
			fixedPage(a.path, a.scope, func(r *request) (*response, error) {
				f, err := a.ask(r)
				if err != nil {
					return nil, err
				}
				return show("form", f)
			}),
			post(a.path, a.scope, func(r *request) (*response, error) { return u.act(r, a) }))
	}
	return routes
}

// A kind is the part that the acts on one kind of object share.
type kind[T any] struct {
	// path begins the paths of the forms, and texts the keys of their texts. section is the menu entry.
	path, texts, section string
	// prefix is the prefix of the id in the path. If the path has no id, id returns it instead; else id is
	// nil.
	prefix string
	id     func(r *request) (string, error)
	find   func(r *request, id string) (T, error)
	// begin adds facts about the object to a form.
	begin func(f *form, object T)
	// page returns the page to return to. Nil means the object's own page.
	page func(r *request) string
}

// object returns the id of the request's object.
func (k *kind[T]) object(r *request) (string, error) {
	if k.id != nil {
		return k.id(r)
	}
	return r.bareID(k.prefix)
}

// back returns the page to return to.
func (k *kind[T]) back(r *request) string {
	if k.page != nil {
		return k.page(r)
	}
	return Root + strings.TrimSuffix(strings.Replace(k.path, ":id", r.params["id"], 1), "/")
}

// from adapts a method of the store or the engine to kind.find.
func from[T any](
	find func(ctx context.Context, project, id string) (T, error),
) func(r *request, id string) (T, error) {
	return func(r *request, id string) (T, error) { return find(r.ctx, r.caller.Project, id) }
}

// An actOn is an act on an object. Its texts are NAME.title, NAME.says, NAME.submit and NAME.done.
type actOn[T any] struct {
	name string
	// scope is the scope that the key needs. Empty means store.ScopeOperate.
	scope store.Scope
	// ask completes the form. Nil means that the form asks only for a reason. actsOn appends the field for
	// the reason unless ask has added it.
	ask func(f *form, object T) error
	// do does the act, and the object's page says that it is done. An act with another response has respond
	// instead.
	do      func(r *request, id string) error
	respond func(r *request, id string) (*response, error)
	// to is the path of the page after an act that deletes the object. Empty means the object's page.
	to string
	// danger is true if the act cannot be undone. path is the last part of the form's path. Empty means name.
	danger bool
	path   string
}

// actsOn returns the routes of the acts on one kind of object.
func actsOn[T any](u *UI, k kind[T], all []actOn[T]) []Route {
	var list []act
	for _, a := range all {
		key := k.texts + a.name
		ask := func(r *request) (*form, error) {
			id, err := k.object(r)
			if err != nil {
				return nil, err
			}
			object, err := k.find(r, id)
			if err != nil {
				return nil, err
			}
			f := u.form(r, k.section, key, k.back(r))
			f.Danger = a.danger
			k.begin(f, object)
			if a.ask != nil {
				err = a.ask(f, object)
			}
			if _, found := f.field("reason"); !found {
				f.Fields = append(f.Fields, f.askReason())
			}
			return f, err
		}
		do := func(r *request) (*response, error) {
			id, err := k.object(r)
			if err != nil {
				return nil, err
			}
			if a.respond != nil {
				return a.respond(r, id)
			}
			if err := a.do(r, id); err != nil {
				return nil, err
			}
			if a.to != "" {
				return u.redirectDone(r, Root+a.to, key+".done")
			}
			return u.returnDone(r, k.back(r), r.lang.text(key+".done"))
		}
		path, scope := k.path+cmp.Or(a.path, a.name), cmp.Or(a.scope, store.ScopeOperate)
		list = append(list, act{path, scope, ask, do})
	}
	return u.acts(list...)
}

// form returns a form with the texts KEY.title, KEY.says and KEY.submit. Each suffix in effects names one
// more effect: the text of KEY and the suffix. back is the cancel link unless the request names one.
func (u *UI) form(r *request, section, key, back string, effects ...string) *form {
	f := &form{base: u.base(r, section, key+".title"), Back: r.back(back),
		Submit: r.lang.text(key + ".submit")}
	for _, name := range append([]string{".says"}, effects...) {
		f.Effects = append(f.Effects, f.T(key+name))
	}
	return f
}

// returnDone redirects to the page that the act came from, or otherwise, with a success message.
func (u *UI) returnDone(r *request, otherwise, text string) (*response, error) {
	u.flashDone(r, text)
	return redirect(r.back(otherwise))
}

// redirectDone redirects to another page after an act, with a success message.
func (u *UI) redirectDone(r *request, to, key string) (*response, error) {
	u.flashDone(r, r.lang.text(key))
	return redirect(to)
}

// act handles the POST of an act. If the input is invalid (422) or the act conflicts with the object's state
// (409), it shows the form with the typed values and the errors.
func (u *UI) act(r *request, a act) (*response, error) {
	var done *response
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
	f.keepTyped()
	if problem.Status == http.StatusConflict {
		f.Wrong = f.Or("trouble.", problem.Code)
	}
	for _, wrong := range problem.Errors {
		f.refuse(store.FieldError(wrong))
	}
	return &response{status: problem.Status, template: "form", page: f}, nil
}

// refuse adds an error to its field. An error of a part, such as "policy.tiers[0]", goes to the nearest field
// that contains the part.
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
	if x.Wrong != "" { // several parts of one field may be invalid
		x.Wrong += "<br>"
	}
	if name != wrong.Field {
		x.Wrong += `<code translate="no">` + escaped(wrong.Field) + `</code> `
	}
	x.Wrong += f.Engine(wrong.Message)
}

// maxReason bounds the bytes of a reason. The API has the same bound.
const maxReason = 1024

// preview shows the form with its typed values and preview lines. The act is not done.
func preview(f *form, lines ...string) (*response, error) {
	f.keepTyped()
	f.Preview = lines
	return show("form", f)
}

// invalid returns the error for one invalid field.
func invalid(name, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: name, Message: message}}}
}
