// Package arm reads the resources of an Azure Resource Manager template, as `bicep build` writes it, with the values that their
// expressions have. Package declare calls it for the entities of Service Bus.
//
//	template.go    resources, loops, conditions, nested deployments
//	expression.go  parses and evaluates expressions
//	functions.go   the functions that expressions may call
//
// What only a deployment in Azure knows (resourceGroup(), uniqueString(), a parameter without a value) is unknown. It may be passed
// on and become part of a text, because most templates use it for the name of the namespace, or a location, alone: an unknown part
// of a text is the expression between two NUL bytes. Where a name or a property of a resource needs it, the error names the expression.
//
// Package arm does not know what the resources mean. It has no state; its functions are safe for concurrent use.
package arm
