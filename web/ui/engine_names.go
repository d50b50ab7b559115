package ui

import (
	"html/template"
	"strings"
)

// programNames are the names that the program gives to actors that are no keys, with their texts.
var programNames = map[string]string{"admin key": "actor.admin_key", "dispatcher": "actor.dispatcher"}

// ByName shows the name of an actor: a text for an actor of the program, else data.
func (b *base) ByName(actor string) template.HTML {
	if key, ok := programNames[actor]; ok {
		return escaped(b.T(key))
	}
	return asData(actor)
}

// actorText returns the name of an actor as text.
func (b *base) actorText(actor string) string {
	if key, ok := programNames[actor]; ok {
		return b.T(key)
	}
	return actor
}

// Because shows the reason of an act. The program's own reasons are texts of the engine; others were typed.
func (b *base) Because(actor, reason string) template.HTML {
	if actor == "dispatcher" {
		return b.Engine(reason)
	}
	return asData(reason)
}

// Roles shows the roles of a process, which are separated by commas. The spaces allow line breaks.
func (b *base) Roles(roles string) template.HTML {
	var all []string
	for role := range strings.SplitSeq(roles, ",") {
		all = append(all, string(b.Named("role.", role)))
	}
	return template.HTML(strings.Join(all, " · "))
}

// Named shows the text of a key that ends with a name of the program, such as that of a scope.
func (b *base) Named(prefix, name string) template.HTML {
	if b.Has(prefix + name) {
		return escaped(b.T(prefix + name))
	}
	return untranslated(name)
}
