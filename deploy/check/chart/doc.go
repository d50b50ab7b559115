// Package chart checks the Helm chart in deploy/helm and its rendered form in deploy/kubernetes. The library
// of Helm renders the chart, and every document is decoded strictly with the types of Kubernetes: a field
// that does not exist is an error. The tests then check rules on the objects. No cluster is used, so
// admission and scheduling are not checked.
package chart
