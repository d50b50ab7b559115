package ui

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestCreateEndpointTakesWhatIsTyped(t *testing.T) {
	t.Parallel()
	b, _, change := actingOn(t, nil)
	b.signIn(testKey)
	b.post("/ui/endpoints/new", "url", " https://new.example/x ", "name", "New", "external_id", "m-1", "topics", "payment.*\r\nrefund.done, *", "profile", "alipay",
		"policy", "15s 3m", "success", `{"status":[200]}`, "signer", "none", "headers", "X-A: 1\r\nX-B: 2", "rate", "5/s", "concurrency", "4", "url_override", "any",
		"was.url_override", "deny", "secret", "s", "secret_label", "l").ok()
	ch := *change
	if *ch.URL != "https://new.example/x" || *ch.Name != "New" || *ch.ExternalID != "m-1" || !slices.Equal(*ch.Topics, []string{"payment.*", "refund.done", "*"}) ||
		ch.Profile != "alipay" || !ch.PolicyGiven || len(ch.Policy.Tiers) != 2 || ch.Policy.Timeout == 0 || string(ch.SuccessRule) != `{"status":[200]}` || ch.Signer != "none" ||
		!slices.Equal(*ch.Headers, []store.Header{{Name: "X-A", Value: "1"}, {Name: "X-B", Value: "2"}}) || *ch.Rate != "5/s" || *ch.Concurrency != 4 || *ch.URLOverride != "any" ||
		ch.Secret != "s" || ch.SecretLabel != "l" || len(ch.Clear)+len(ch.Invalid) > 0 {
		t.Errorf("the change is %+v", ch)
	}
	b.post("/ui/endpoints/new", "url", "https://new.example/", "policy", "exp(1s, 2, 1h, 10)", "url_override", "deny", "was.url_override", "deny").ok()
	if change.PolicyName != "exp(1s, 2, 1h, 10)" || change.Name != nil || change.Topics != nil || change.URLOverride != nil || change.Concurrency != nil {
		t.Errorf("the change is %+v", *change)
	}
}

// formOf returns what a browser would send of the page's form, with some of it typed anew.
func formOf(res result, typed ...string) []string {
	values := make(map[string]string)
	for _, n := range find(res.doc, "section form input") {
		values[attr(n, "name")] = attr(n, "value")
	}
	for _, n := range find(res.doc, "section form textarea") {
		values[attr(n, "name")] = strings.ReplaceAll(textOf(n), "\n", "\r\n")
	}
	for _, n := range find(res.doc, "section form select") {
		for _, o := range find(n, "option[selected]") {
			values[attr(n, "name")] = attr(o, "value")
		}
	}
	for i := 0; i+1 < len(typed); i += 2 {
		values[typed[i]] = typed[i+1]
	}
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, name, value)
	}
	return pairs
}

func TestEditChangesOnlyWhatWasChanged(t *testing.T) {
	t.Parallel()
	b, _, change := actingOn(t, nil)
	b.signIn(testKey)
	id := "/ui/endpoints/ep_" + testID(1)
	form := b.get(id + "/edit").ok()
	if strings.Contains(form.body, "hunter2") {
		t.Error("the form shows credentials")
	}
	for _, c := range []struct {
		name  string
		typed []string
		want  control.EndpointChange
	}{
		{"nothing", nil, control.EndpointChange{}},
		{"a name", []string{"name", "Other"}, control.EndpointChange{Name: new("Other")}},
		{"no name", []string{"name", ""}, control.EndpointChange{Name: new("")}},
		{"an address", []string{"url", "https://new.example/"}, control.EndpointChange{URL: new("https://new.example/")}},
		{"cleared", []string{"external_id", "", "policy", "", "success", "", "signer", "", "rate", "", "concurrency", " "},
			control.EndpointChange{Clear: []string{"external_id", "rate", "concurrency", "policy", "success", "signer"}}},
		{"no topics", []string{"topics", ""}, control.EndpointChange{Topics: &[]string{}}},
		{"no headers", []string{"headers", ""}, control.EndpointChange{Headers: &[]store.Header{}}},
		{"a header", []string{"headers", "x-shop: 8\r\nauthorization: ***"},
			control.EndpointChange{Headers: &[]store.Header{{Name: "x-shop", Value: "8"}, {Name: "authorization", Value: "Bearer hunter2"}}}},
		{"override", []string{"url_override", "deny"}, control.EndpointChange{URLOverride: new("deny")}},
	} {
		b.post(id+"/edit", formOf(form, c.typed...)...).leads(id)
		c.want.Admin = true
		if got, want := shownChange(t, *change), shownChange(t, c.want); got != want {
			t.Errorf("%s: the change is\n%s\nwant\n%s", c.name, got, want)
		}
	}
}

func shownChange(t *testing.T, ch control.EndpointChange) string {
	t.Helper()
	text, err := json.Marshal(ch)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEditSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	b, _, change := actingOn(t, nil)
	b.signIn(testKey)
	id := "/ui/endpoints/ep_" + testID(1)
	form := b.get(id + "/edit").ok()
	for field, typed := range map[string][2]string{
		"url": {"https://shop.example/other?token=***", "type the whole address"}, "concurrency": {"many", "is not a whole number"},
		"policy": {"15s soon", "is not a duration"}, "headers": {"X-Token: ***", "there is none of that name"},
	} {
		res := b.refuses(id+"/edit", "#f-"+field+"-wrong", typed[1], formOf(form, field, typed[0], "name", "Other")...)
		// What is sent again still differs from what was shown at first.
		if b.post(id+"/edit", formOf(res, field, attr(find(res.doc, "[name=was."+field+"]")[0], "value"))...).leads(id); change.Name == nil || *change.Name != "Other" || change.URL != nil {
			t.Errorf("%s: sent again, the change is %s", field, shownChange(t, *change))
		}
	}
	wrong := &store.InvalidError{Fields: []store.FieldError{{Field: "topics[1]", Message: "is empty"}, {Field: "policy.tiers", Message: "are wrong"}}}
	b, _, _ = actingOn(t, wrong)
	b.signIn(testKey)
	res := b.post(id+"/edit", "name", "Other")
	res.has("#f-topics-wrong", "topics[1] is empty")
	res.has("#f-policy-wrong", "policy.tiers are wrong")
	b, _, _ = actingOn(t, store.ErrExists)
	b.signIn(testKey)
	if res := b.post("/ui/endpoints/new", "url", "https://x.example/", "external_id", "m-1"); res.status != http.StatusConflict {
		t.Errorf("an id that is taken: status %d", res.status)
	} else {
		res.has(".banner.bad", "There is one already")
	}
}

func TestASecretIsNotForOperators(t *testing.T) {
	t.Parallel()
	b, done, _ := actingOn(t, nil)
	b.signIn("operator")
	id := "/ui/endpoints/ep_" + testID(1)
	b.get(id + "/edit").ok().lacks("#f-secret")
	if res := b.post(id+"/edit", "secret", "whsec_x"); res.status != http.StatusForbidden || len(*done) > 0 {
		t.Errorf("an operator changes the secret by editing: %d, done %q", res.status, *done)
	}
}
