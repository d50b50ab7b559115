package browser

import (
	_ "embed"
)

// rulesScript has what is asked of every page, as functions that are evaluated in it.
//
//go:embed rules.js
var rulesScript string

// inPage is an expression of the functions of rules.js.
func inPage(expression string) string {
	return "(() => {" + rulesScript + "\nreturn " + expression + ";\n})()"
}
