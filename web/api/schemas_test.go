package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// A schema is a schema of the document that is generated from package client.
type schema struct {
	// name is empty if it is the name of the type.
	name string
	of   any
	// request: the fields may be null, and other fields are not allowed.
	request bool
	// without are fields of the type that the schema lacks. only, if not empty, are the fields that it has.
	// required are required fields, besides those with the tag.
	without, only, required string
}

// schemas are the generated schemas in the order of the document. A reference to a type uses the first schema
// of that type.
var schemas = []schema{
	{of: client.Problem{}},
	{of: client.Policy{}, request: true},
	{name: "Submission", of: client.CallbackRequest{}, request: true},
	{
		name: "Event", of: client.CallbackRequest{}, request: true,
		without: "url endpoint profile signer lane", required: "topic",
	},
	{of: client.CallbackPatch{}, request: true},
	{name: "PollNew", of: client.PollRequest{}, request: true},
	{
		name: "PollRequest", of: client.CallbackRequest{}, request: true,
		only: "url endpoint method headers payload body body_base64 content_type signer",
	},
	{of: client.Until{}},
	{
		name: "ResultCallback", of: client.CallbackRequest{}, request: true,
		without: "payload body body_base64 content_type due_at idempotency_key",
	},
	{of: client.PollResult{}},
	{of: client.PollDetail{}},
	{name: "Resolve", of: client.ResolveRequest{}, request: true},
	{name: "Resolved", of: client.ResolveResult{}},
	{name: "ScheduleNew", of: client.ScheduleChange{}, request: true, required: "name cron callback"},
	{name: "SchedulePatch", of: client.ScheduleChange{}, request: true},
	{name: "Template", of: client.CallbackRequest{}, request: true, without: "due_at idempotency_key"},
	{of: client.Schedule{}},
	{of: client.ScheduleRun{}},
	{of: client.AlertWhen{}, request: true},
	{of: client.AlertSink{}, request: true},
	{of: client.AlertDigest{}, request: true},
	{name: "AlertNew", of: client.AlertChange{}, request: true, required: "name when sink"},
	{name: "AlertPatch", of: client.AlertChange{}, request: true},
	{of: client.Alert{}},
	{of: client.AlertFiring{}},
	{of: client.Explanation{}},
	{of: client.Block{}},
	{of: client.EndpointFields{}, request: true},
	{name: "EndpointNew", of: client.EndpointChange{}, request: true, required: "url"},
	{name: "EndpointPatch", of: client.EndpointChange{}, request: true},
	{of: client.Endpoint{}},
	{of: client.EndpointWithSecret{}},
	{of: client.Lane{}},
	{of: client.LaneView{}},
	{name: "RedriveNew", of: client.RedriveRequest{}, request: true},
	{of: client.Redrive{}},
	{of: client.RedriveTried{}},
	{of: client.Outcome{}},
	{of: client.Reconciliation{}},
	{of: client.ReconcileCounts{}},
	{of: client.ReconcileGroup{}},
	{of: client.ReferenceList{}, request: true},
	{of: client.RefTopic{}, request: true},
	{of: client.Comparison{}},
	{of: client.ItemDifferences{}},
	{of: client.Finding{}},
	{name: "ExpectedNew", of: client.ExpectedList{}, request: true},
	{name: "ExpectedRemoval", of: client.ExpectedRemoval{}, request: true},
	{of: client.ExpectedDay{}},
	{of: client.ReconcileReport{}},
	{of: client.ReconcileReportPage{}},
	{of: client.ReconcileSettings{}, request: true},
	{of: client.RelayRow{}, request: true},
	{of: client.RelayBatch{}, request: true},
	{of: client.RelayReport{}, request: true},
	{of: client.RelayRefusal{}},
	{of: client.RelayActProgress{}},
	{of: client.RelayReply{}},
	{of: client.RelayResult{}},
	{of: client.RelayAct{}},
	{of: client.RelaySource{}},
	{of: client.RelayRetry{}, request: true},
	{of: client.RelayDrop{}, request: true},
	{of: client.RelayReplay{}, request: true},
	{of: client.ProjectPause{}},
	{of: client.Stop{}},
	{of: client.NamedPolicy{}},
	{of: client.NamedRule{}},
	{of: client.NamedProfile{}},
	{of: client.PolicyPut{}, request: true},
	{of: client.ProfilePut{}, request: true},
	{of: client.QuotaChange{}, request: true},
	{name: "ProjectPatch", of: client.ProjectFields{}, request: true},
	{name: "ProjectNew", of: client.ProjectRequest{}, request: true},
	{of: client.Project{}},
	{of: client.Quotas{}},
	{of: client.Key{}},
	{of: client.Secret{}},
	{of: client.Rotation{}, request: true},
	{of: client.ProjectRotation{}, request: true},
	{of: client.RotatedSecret{}},
	{of: client.Callback{}},
	{name: "Canceled", of: client.CancelResult{}},
	{of: client.Attempt{}},
	{of: client.CallbackResult{}},
	{of: client.CancelRequest{}, request: true},
	{of: client.RetryRequest{}, request: true},
	{of: client.RescheduleRequest{}, request: true},
	{of: client.EndpointBatch{}, request: true},
	{of: client.EndpointResult{}},
	{of: client.LaneLimits{}, request: true},
	{of: client.KeyRequest{}, request: true},
	{of: client.ViewLinkRequest{}, request: true}, {of: client.ViewLink{}},
	{of: client.NewKey{}},
	{of: client.Stats{}},
	{of: client.ReencryptRequest{}, request: true},
	{of: client.Reencryption{}},
	{of: client.VerifyRequest{}, request: true},
	{of: client.Drift{}},
	{of: client.RebuildRequest{}, request: true},
	{of: client.Rebuild{}},
	{of: client.AuditEntry{}},
	{of: client.AuditCheck{}},
}

func (s *schema) title() string { return cmp.Or(s.name, reflect.TypeOf(s.of).Name()) }

// enums are the schemas of types with constants.
var enums = []string{"State", "TerminalReason", "Class", "Scope", "BlockCode", "RedriveAction", "PollOutcome"}

// selfNullable are the hand-written schemas that already allow null.
var selfNullable = []string{
	"PolicyChoice", "SuccessChoice", "SignerChoice", "RateOrNull", "Reason", "LaneBlock", "CallbackSuccess",
	"URLOverride", "Predicates",
}

// generatedMark is the line of the document before the generated part.
const generatedMark = "    # What follows is generated from package client: go test ./web/api -run " +
	"TestSchemas -update\n"

func TestSchemasAreThoseOfPackageClient(t *testing.T) {
	document, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hand, _, found := strings.Cut(string(document), generatedMark)
	if !found {
		t.Fatalf("the document has no line %q", generatedMark)
	}
	g := readClient(t)
	for _, name := range enums {
		values := strings.Join(g.constants[name], ", ")
		writeYAML(&g.b, "    ", name,
			fmt.Sprintf("{type: string, enum: [%s], description: %s}", values, quoted(g.docs[name])))
	}
	for _, s := range schemas {
		g.schema(&s)
	}
	transcript.File(t, "openapi.yaml", func(*testing.T, string) string {
		return hand + generatedMark + g.b.String()
	})
}

// A generator writes schemas.
type generator struct {
	b strings.Builder
	// docs are the comments of types and, as Type.Field, of their fields. constants are the values of a
	// type's constants.
	docs      map[string]string
	constants map[string][]string
}

// readClient reads the comments and the constants of package client.
func readClient(t *testing.T) *generator {
	t.Helper()
	g := &generator{docs: map[string]string{}, constants: map[string][]string{}}
	paths, err := filepath.Glob("../../client/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("package client: %q, %v", paths, err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range gen.Specs {
					g.spec(gen, spec)
				}
			}
		}
	}
	return g
}

func (g *generator) spec(decl *ast.GenDecl, spec ast.Spec) {
	oneLine := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		if name, ok := spec.Type.(*ast.Ident); ok && len(spec.Values) == 1 {
			value := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
			g.constants[name.Name] = append(g.constants[name.Name], value)
		}
	case *ast.TypeSpec:
		g.docs[spec.Name.Name] = oneLine(decl.Doc)
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					g.docs[spec.Name.Name+"."+name.Name] = oneLine(f.Doc)
				}
			}
		}
	}
}

// schema writes a schema, with a line for each field.
func (g *generator) schema(s *schema) {
	var fields []client.Field
	for _, f := range client.Fields(reflect.TypeOf(s.of)) {
		without, only := strings.Fields(s.without), strings.Fields(s.only)
		if !slices.Contains(without, f.Name) && (len(only) == 0 || slices.Contains(only, f.Name)) {
			f.Required = f.Required || slices.Contains(strings.Fields(s.required), f.Name)
			f.Omit = f.Omit || len(f.Index) > 1 &&
				reflect.TypeOf(s.of).Field(f.Index[0]).Type.Kind() == reflect.Pointer
			fields = append(fields, f)
		}
	}
	fmt.Fprintf(&g.b, "    %s:\n      type: object\n", s.title())
	writeYAML(&g.b, "      ", "description", quoted(g.docs[reflect.TypeOf(s.of).Name()]))
	if s.request {
		g.b.WriteString("      additionalProperties: false\n")
	}
	if required := requiredOf(fields, s.request); required != "" {
		writeYAML(&g.b, "      ", "required", "["+required+"]")
	}
	g.b.WriteString("      properties:\n")
	for _, f := range fields {
		writeYAML(&g.b, "        ", f.Name, "{"+g.property(&f, s.request)+"}")
	}
}

func requiredOf(fields []client.Field, request bool) string {
	var names []string
	for _, f := range fields {
		if f.Required || !request && !f.Omit {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ", ")
}

// property returns the schema of one field.
func (g *generator) property(f *client.Field, request bool) string {
	null := f.Null || request && !f.Required
	text := f.Schema
	ref, isRef := strings.CutPrefix(text, "$ref: ")
	switch {
	case isRef:
		text = reference(ref, null)
	case strings.HasPrefix(text, "enum: "):
		text = typed("string", strings.Contains(text, ", null]")) + ", " + text
	case strings.HasPrefix(text, "const: "), strings.HasPrefix(text, "type: ["):
	case strings.HasPrefix(text, "type: "):
		text = typed(strings.TrimPrefix(text, "type: "), null)
	default:
		text = joined(g.typeOf(f.Type, null, request), text)
	}
	if doc := g.docs[f.Of+"."+f.Go]; doc != "" {
		text = joined(text, "description: "+quoted(doc))
	}
	return text
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

func reference(name string, null bool) string {
	to := fmt.Sprintf("$ref: %q", "#/components/schemas/"+name)
	if null && !slices.Contains(selfNullable, name) {
		return fmt.Sprintf(`anyOf: [{%s}, {type: "null"}]`, to)
	}
	return to
}

func typed(name string, null bool) string {
	if null {
		return fmt.Sprintf(`type: [%s, "null"]`, name)
	}
	return "type: " + name
}

// typeOf returns the schema of a type.
func (g *generator) typeOf(t reflect.Type, null, request bool) string {
	if o, ok := reflect.New(t).Interface().(interface{ Give() any }); ok { // a client.Optional
		return g.typeOf(reflect.TypeOf(o.Give()).Elem(), null || !request, request)
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return typed("string", null) + ", format: date-time"
	case reflect.TypeFor[json.RawMessage]():
		return ""
	case reflect.TypeFor[client.Headers]():
		return typed("object", null) + ", additionalProperties: {type: string}"
	case reflect.TypeFor[client.Duration]():
		if null {
			return `$ref: "#/components/schemas/DurationOrNull"`
		}
		return reference("Duration", false)
	case reflect.TypeFor[client.Statuses](), reflect.TypeFor[client.Predicate]():
		return reference(t.Name(), null)
	case reflect.TypeFor[[]byte]():
		return typed("string", null) + ", contentEncoding: base64"
	}
	if slices.Contains(enums, t.Name()) {
		return reference(t.Name(), null)
	}
	switch t.Kind() {
	case reflect.String:
		return typed("string", null)
	case reflect.Bool:
		return typed("boolean", null)
	case reflect.Int, reflect.Int64:
		return typed("integer", null)
	case reflect.Float64:
		return typed("number", null)
	case reflect.Pointer:
		return g.typeOf(t.Elem(), null, request)
	case reflect.Slice:
		return typed("array", null) + ", items: {" + g.typeOf(t.Elem(), false, request) + "}"
	case reflect.Map:
		return typed("object", null) + ", additionalProperties: {" + g.typeOf(t.Elem(), false, request) + "}"
	}
	return g.object(t, null, request)
}

// object returns the schema of a struct: a reference if the document has a schema for it.
func (g *generator) object(t reflect.Type, null, request bool) string {
	for _, s := range schemas {
		if reflect.TypeOf(s.of) == t {
			return reference(s.title(), null)
		}
	}
	fields := client.Fields(t)
	var properties []string
	for _, f := range fields {
		properties = append(properties, f.Name+": {"+g.property(&f, request)+"}")
	}
	return fmt.Sprintf("%s, required: [%s], properties: {%s}",
		typed("object", null), requiredOf(fields, request), strings.Join(properties, ", "))
}
